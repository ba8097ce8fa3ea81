package vdoctl

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// redactor removes secret values from texts: plain, in base64 at any offset, and escaped for JSON, Go, XML, YAML and
// URLs. It also hides a value of several lines line by line, since logs and YAML prefix each. It misses a value that
// was wrapped (YAML does that at spaces), so strings are cleaned before they become YAML.
type redactor struct {
	values map[string]bool
	built  *strings.Replacer // of the plain values; nil if there are new ones
}

func newRedactor() *redactor { return &redactor{values: map[string]bool{}} }

const (
	// shorter values occur in half of all words
	minSecret = 4
	// shorter lines of a value occur in any text
	minLine = 6
	// larger values are searched by line
	maxWhole = 64 << 10
	hidden   = "[hidden]"
)

// setting is a line of a configuration file with a value: key = "value", key: value.
var setting = regexp.MustCompile(`(?m)^[ \t]*(?:-[ \t]+)?"?([\w.\[\]-]+)"?[ \t]*[=:][ \t]*"?(.*?)"?,?\s*$`)

// below is a setting whose value is on the next line.
var below = regexp.MustCompile(`(?m)^[ \t]*"?([\w.\[\]-]+)"?[ \t]*[=:][ \t]*\r?\n[ \t]+"?([^\s=:]+?)"?[ \t]*\r?$`)

func settingsIn(text string) [][]string {
	return append(setting.FindAllStringSubmatch(text, -1), below.FindAllStringSubmatch(text, -1)...)
}

// soundsSecret matches names of fields, keys and variables with secrets. It also matches gzip in base64, which may
// contain anything.
var soundsSecret = regexp.MustCompile(`(?i)pass|secret|token|credential|private|authorization|\b_?auth\b|^H4sI`)

// objectName matches fields that sound secret but have the name of an object.
var objectName = regexp.MustCompile(`(?i)^secret[_-]?name(space)?$`)

func isSecretName(key string) bool {
	return soundsSecret.MatchString(key) && !objectName.MatchString(key)
}

// add adds a value of a Secret. It also adds the secret-sounding values of a configuration file, the lines of other
// texts, and the parts of registry logins. The rest of a configuration, such as server names, stays readable.
func (r *redactor) add(value []byte) {
	r.built = nil
	text := strings.TrimSpace(string(value))
	if len(value) <= maxWhole {
		r.one(text)
	}
	var document any
	if json.Unmarshal(value, &document) == nil {
		visit("", document, r.field)
	} else if !isConfiguration(text) {
		r.lines(text)
	}
	for _, m := range settingsIn(text) {
		if isSecretName(m[1]) {
			r.one(m[2])
			r.one(strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(m[2]))
		}
	}
}

// isConfiguration reports whether most lines of a text are settings, sections and comments.
func isConfiguration(text string) bool {
	settings, all := 0, 0
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		all++
		if strings.ContainsRune("[#;{}", rune(line[0])) || line == "---" || setting.MatchString(line) {
			settings++
		}
	}
	return all > 1 && 2*settings > all
}

// lines adds each line of a text with several lines, except short ones.
func (r *redactor) lines(text string) {
	if !strings.Contains(text, "\n") {
		return
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); len(line) >= minLine && !strings.HasPrefix(line, "-----") {
			r.one(line)
		}
	}
}

// field adds a text of a document whose key sounds secret. The auth of a registry's login is NAME:PASSWORD in base64.
func (r *redactor) field(key, text string) string {
	if !isSecretName(key) {
		return text
	}
	r.one(text)
	r.lines(text)
	if login, err := base64.StdEncoding.DecodeString(text); err == nil {
		if _, password, ok := strings.Cut(string(login), ":"); ok {
			r.one(password)
		}
	}
	return text
}

// visit replaces the texts of a document. replace gets each with its key, or that of its list; a key itself with "".
func visit(key string, node any, replace func(key, text string) string) any {
	switch node := node.(type) {
	case map[string]any:
		out := make(map[string]any, len(node))
		for k, v := range node {
			out[replace("", k)] = visit(k, v, replace)
		}
		return out
	case []any:
		for i := range node {
			node[i] = visit(key, node[i], replace)
		}
	case string:
		return replace(key, node)
	}
	return node
}

// one adds a value, in all forms that it may have in a file.
func (r *redactor) one(text string) {
	if len(text) < minSecret {
		return
	}
	r.built = nil
	r.values[text] = true
	for _, form := range []string{quote(text), quote(quote(text)), strconv.Quote(text), strconv.QuoteToASCII(text)} {
		r.values[strings.TrimSuffix(strings.TrimPrefix(form, `"`), `"`)] = true
	}
	for _, escapes := range escaped {
		r.values[escapes.Replace(text)] = true
	}
	r.values[url.QueryEscape(text)] = true
	r.values[url.PathEscape(text)] = true
	for _, form := range inBase64(text) {
		r.values[form] = true
	}
}

// quote returns a text as in JSON, with HTML's signs escaped, without quotation marks.
func quote(text string) string {
	quoted, _ := json.Marshal(text) //nolint:errchkjson // a text can be written
	return string(quoted[1 : len(quoted)-1])
}

// escaped are the forms of XML, which may escape the last three signs or not, and of YAML in single quotes.
var escaped = []*strings.Replacer{
	strings.NewReplacer("&", "&amp;", "<", "&lt;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;"),
	strings.NewReplacer("'", "''"),
}

// inBase64 returns the letters of a text in base64 that do not depend on its neighbours, for each of the three
// possible offsets.
func inBase64(text string) []string {
	var out []string
	for _, coding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			whole := coding.EncodeToString(append(make([]byte, before), text...))
			from := (before*8 + 5) / 6 // the letters with bits of the preceding text
			to := (before + len(text)) * 8 / 6
			if to-from >= minSecret {
				out = append(out, whole[from:to])
			}
		}
	}
	return out
}

func (r *redactor) replacing() *strings.Replacer {
	if r.built == nil {
		all := slices.Collect(maps.Keys(r.values))
		slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) }) // the longer first: it may contain others
		pairs := make([]string, 0, 2*len(all))
		for _, v := range all {
			pairs = append(pairs, v, hidden)
		}
		r.built = strings.NewReplacer(pairs...)
	}
	return r.built
}

func (r *redactor) clean(data []byte) []byte { return []byte(r.cleanText(string(data))) }

func (r *redactor) cleanText(text string) string { return r.replacing().Replace(text) }

// object returns a value as JSON has it, with the secrets in its texts hidden.
func (r *redactor) object(value any) (any, error) {
	data, err := json.Marshal(value)
	var out any
	if err == nil {
		err = utiljson.Unmarshal(data, &out) // which keeps integers of 64 bits
	}
	if err != nil {
		return nil, err
	}
	return visit("", out, func(_, text string) string { return r.cleanText(text) }), nil
}

// plain matches texts that are no setting, login or document: a name, a number, a path, an option, an image.
var plain = regexp.MustCompile(`^[\w./:,+$()=-]{0,256}(@sha256:[0-9a-f]{64})?$`)

// shown returns a text that may have a secret from no Secret. It is hidden unless it is plain, and neither it nor its
// name sounds secret.
func (r *redactor) shown(name, text string) string {
	r.settings(text)
	if soundsSecret.MatchString(name) {
		r.found(text)
		return hidden
	}
	if !plain.MatchString(text) || soundsSecret.MatchString(text) {
		return hidden
	}
	return text
}

// found adds the value of a secret's name, since logs may have it. It skips numbers, booleans and file names, which
// occur in any text.
func (r *redactor) found(value string) {
	_, notNumber := strconv.ParseFloat(value, 64)
	_, notBool := strconv.ParseBool(value)
	if len(value) >= minLine && notNumber != nil && notBool != nil && !strings.HasPrefix(value, "/") {
		r.add([]byte(value))
	}
}

func (r *redactor) settings(text string) {
	for _, m := range settingsIn(text) {
		if isSecretName(m[1]) {
			r.found(strings.Trim(m[2], `"'`))
		}
	}
}

// withoutSecrets removes unneeded fields, and values that may have secrets from no Secret. Those are the data of
// foreign ConfigMaps, and variables, arguments and annotations that are not plain.
func (r *redactor) withoutSecrets(u *unstructured.Unstructured) {
	u.SetManagedFields(nil)
	ours := strings.HasPrefix(u.GetName(), "vdo-") || u.GetName() == drivers.FeatureStates
	for _, field := range []string{"data", "binaryData"} {
		data, _ := u.Object[field].(map[string]any)
		for k, v := range data {
			text, _ := v.(string)
			r.settings(text)
			if isSecretName(k) {
				r.found(text)
			}
			if !ours || isSecretName(k) {
				data[k] = hidden
			}
		}
	}
	r.walk(u.Object)
}

// walk visits variables, headers, arguments and annotations, at any depth of a pod's template.
func (r *redactor) walk(node any) {
	switch node := node.(type) {
	case map[string]any:
		if value, ok := node["value"].(string); ok {
			name, _ := node["name"].(string)
			node["value"] = r.shown(name, value)
		}
		for k, v := range node {
			switch k {
			case "args", "command":
				list, _ := v.([]any)
				r.arguments(list)
			case "annotations":
				all, _ := v.(map[string]any)
				for name, text := range all {
					text, _ := text.(string)
					all[name] = r.shown(name, text)
				}
			}
			r.walk(v)
		}
	case []any:
		for _, v := range node {
			r.walk(v)
		}
	}
}

// arguments hides values of --name=value, or of a name and a value in sequence.
func (r *redactor) arguments(list []any) {
	before := "" // the option whose value may follow
	for i := range list {
		text, _ := list[i].(string)
		name, value, both := strings.Cut(text, "=")
		if both && soundsSecret.MatchString(name) {
			r.found(value)
		}
		list[i] = r.shown(before, text)
		before = ""
		if strings.HasPrefix(text, "-") && !both {
			before = name
		}
	}
}
