package vdoctl

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// redactor takes secret values out of texts: as they are, in base64 wherever they are in
// what was encoded, and escaped as JSON, Go, XML, YAML and URLs do. A value of several lines
// is hidden line by line as well, since logs and YAML put something before each. A value that
// was broken into lines (YAML does that at spaces) is not known again: of what is written as
// YAML the strings are cleaned before.
type redactor struct {
	values map[string]bool
	built  *strings.Replacer // of the values as they are; nil where there are new ones
}

func newRedactor() *redactor { return &redactor{values: map[string]bool{}} }

const (
	// A shorter value is in half of all words.
	minSecret = 4
	// Of a value of several lines, a shorter line may be in any text.
	minLine = 6
	// Larger ones are looked for by their lines.
	maxWhole = 64 << 10
	hidden   = "[hidden]"
)

// setting is a line of a configuration file with a value: key = "value", key: value.
var setting = regexp.MustCompile(`(?m)^\s*(?:-\s+)?"?([\w.\[\]-]+)"?\s*[=:]\s*"?(.*?)"?,?\s*$`)

// soundsSecret tells by their names fields, keys and variables that have secrets; what begins as gzip in base64
// may be anything.
var soundsSecret = regexp.MustCompile(`(?i)pass|secret|token|credential|private|authorization|\b_?auth\b|^H4sI`)

// objectName are fields that sound so, and hold the name of an object.
var objectName = regexp.MustCompile(`(?i)^secret[_-]?name(space)?$`)

func isSecretName(key string) bool {
	return soundsSecret.MatchString(key) && !objectName.MatchString(key)
}

// add notes a value of a Secret. Of a configuration file it notes the values that sound
// secret too, of other texts their lines, of logins of registries what they consist of:
// the rest of those, names of servers for instance, is what someone has to read.
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
	for _, m := range setting.FindAllStringSubmatch(text, -1) {
		if isSecretName(m[1]) {
			r.one(m[2])
			r.one(strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(m[2]))
		}
	}
}

// isConfiguration tells whether most of a text's lines are settings, sections and remarks.
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

// lines notes each line of a text that has several, but the shorter ones.
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

// field notes a text of a document whose key sounds secret. The auth of a registry's login is
// NAME:PASSWORD in base64.
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

// visit replaces the texts of a document. Each is told with its key, or that of its list; a key with none.
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

// one notes a value, in all the forms that it may have in a file.
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

// quote is a text as JSON has it, with HTML's signs escaped; without quotation marks.
func quote(text string) string {
	quoted, _ := json.Marshal(text) //nolint:errchkjson // a text can be written
	return string(quoted[1 : len(quoted)-1])
}

// escaped are the forms of XML, in which the last three may stay as they are, and that of
// YAML between single quotes.
var escaped = []*strings.Replacer{
	strings.NewReplacer("&", "&amp;", "<", "&lt;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;"),
	strings.NewReplacer("'", "''"),
}

// inBase64 are the letters that do not depend on what stands before and after the text,
// for each of the three places that it may begin at.
func inBase64(text string) []string {
	var out []string
	for _, coding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			whole := coding.EncodeToString(append(make([]byte, before), text...))
			from := (before*8 + 5) / 6 // the letters that hold bits of what stands before
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
		slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) }) // the longer, where one is in another
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

// object is a value as it is written as JSON, each of its texts without what is hidden.
func (r *redactor) object(value any) (any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var out any
	numbers := json.NewDecoder(bytes.NewReader(data))
	numbers.UseNumber()
	if err := numbers.Decode(&out); err != nil {
		return nil, err
	}
	return visit("", out, func(_, text string) string { return r.cleanText(text) }), nil
}

// plain is what no setting, login or document is: a name, a number, a path, an option, an image.
var plain = regexp.MustCompile(`^[\w./:,+$()=-]{0,256}(@sha256:[0-9a-f]{64})?$`)

// shown is a text from where someone may have put a secret that is in no Secret: it is hidden unless it is
// plain, and neither it nor its name sounds secret.
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

// found notes what a secret's name has for a value: it may be in the logs all the same. Numbers, yes and no,
// and names of files are in any text.
func (r *redactor) found(value string) {
	_, notNumber := strconv.ParseFloat(value, 64)
	_, notBool := strconv.ParseBool(value)
	if len(value) >= minLine && notNumber != nil && notBool != nil && !strings.HasPrefix(value, "/") {
		r.add([]byte(value))
	}
}

// settings notes the values of the settings in a text that sound secret.
func (r *redactor) settings(text string) {
	for _, m := range setting.FindAllStringSubmatch(text, -1) {
		if isSecretName(m[1]) {
			r.found(strings.Trim(m[2], `"'`))
		}
	}
}

// withoutSecrets takes out what is not needed, and what someone may have put a secret into that is in no
// Secret: what ConfigMaps hold that are not the operator's or the driver's, and variables, arguments and
// annotations that are not plain.
func (r *redactor) withoutSecrets(u *unstructured.Unstructured) {
	u.SetManagedFields(nil)
	ours := strings.HasPrefix(u.GetName(), "vdo-") || u.GetName() == featureStates
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

// featureStates is the ConfigMap of the storage driver's features.
const featureStates = "internal-feature-states.csi.vsphere.vmware.com"

// walk goes to variables, headers, arguments and annotations, wherever a pod's template is.
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

// arguments are --name=value, or the name and the value one after the other.
func (r *redactor) arguments(list []any) {
	before := "" // the option whose value may come
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
