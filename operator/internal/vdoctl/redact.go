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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
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

// soundsSecret tells by their names fields, keys and variables that have secrets.
var soundsSecret = regexp.MustCompile(`(?i)` + secretWords + `|^_?auth$`)

const secretWords = `pass|secret|token|credential|private|authorization`

// objectName are fields that sound so, and hold the name of an object.
var objectName = regexp.MustCompile(`(?i)^secret[_-]?name(space)?$`)

func isSecretName(key string) bool {
	return soundsSecret.MatchString(key) && !objectName.MatchString(key)
}

// add notes a value of a Secret. Of a configuration file it notes the values that sound
// secret too, of a private key its lines, of logins of registries what they consist of:
// the rest of those, names of servers for instance, is what somebody has to read.
func (r *redactor) add(value []byte) {
	r.built = nil
	text := strings.TrimSpace(string(value))
	if len(value) <= maxWhole {
		r.one(text)
	}
	var document any
	if json.Unmarshal(value, &document) == nil {
		r.fields("", document, func(text string) {
			r.one(text)
			r.lines(text, minLine)
		})
	} else if !isConfiguration(text) {
		r.lines(text, minLine)
	}
	for _, m := range setting.FindAllStringSubmatch(text, -1) {
		if isSecretName(m[1]) {
			r.one(m[2])
			r.one(strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(m[2]))
		}
	}
	if strings.Contains(text, "PRIVATE KEY-----") {
		r.lines(text, minSecret)
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
func (r *redactor) lines(text string, shortest int) {
	if !strings.Contains(text, "\n") {
		return
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); len(line) >= shortest && !strings.HasPrefix(line, "-----") {
			r.one(line)
		}
	}
}

// fields tells note the texts of a document whose keys sound secret. The auth of a registry's
// login is NAME:PASSWORD in base64.
func (r *redactor) fields(key string, node any, note func(string)) {
	switch node := node.(type) {
	case map[string]any:
		for k, v := range node {
			r.fields(k, v, note)
		}
	case []any:
		for _, v := range node {
			r.fields(key, v, note)
		}
	case string:
		if !isSecretName(key) {
			return
		}
		note(node)
		if login, err := base64.StdEncoding.DecodeString(node); err == nil {
			if _, password, ok := strings.Cut(string(login), ":"); ok {
				note(password)
			}
		}
	}
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
	return r.texts(out), nil
}

func (r *redactor) texts(node any) any {
	switch node := node.(type) {
	case map[string]any:
		out := make(map[string]any, len(node))
		for k, v := range node {
			out[r.cleanText(k)] = r.texts(v)
		}
		return out
	case []any:
		for i := range node {
			node[i] = r.texts(node[i])
		}
	case string:
		return r.cleanText(node)
	}
	return node
}

const secretKey = `([\w.\[\]-]*(?:` + secretWords + `)[\w.\[\]-]*|\b_?auth)\\?["']?`

// secretSettings are where a text may have a secret's value: the first group stays, the second is
// the name, and the rest is hidden. They are tried in this order: a block of YAML, a line of
// a configuration file to its end, JSON and options within a line, logins of URLs and headers.
var secretSettings = []*regexp.Regexp{
	regexp.MustCompile(`(?mi)^([ \t]*(?:-[ \t]+)?["']?` + secretKey + `[ \t]*:[ \t]*)(?:[|>][-+\d]*[ \t]*)?\r?\n(?:[ \t]+[^:\s]+[ \t]*(?:\n|\z))+`),
	regexp.MustCompile(`(?mi)^([ \t]*(?:-[ \t]+)?["']?` + secretKey + `[ \t]*:[ \t]*)[|>][-+\d]*[ \t]*\r?\n(?:[ \t]*(?:\n|\z)|[ \t]+.*(?:\n|\z))+`),
	regexp.MustCompile(`(?mi)^([ \t]*(?:-[ \t]+)?["']?` + secretKey + `[ \t]*[=:][ \t]*)(\S.*)$`),
	regexp.MustCompile(`(?i)(\\?["']?` + secretKey + `[ \t]*[=:][ \t]*)(\\?"(?:[^"\\]|\\.)*"?|'[^']*'?|\S+)`),
	regexp.MustCompile(`(?i)(--?` + secretKey + `[ \t]+)("(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s-]\S*)`),
	regexp.MustCompile(`(://()[^/\s:@]*:)([^/\s@]+)@`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)()[ \t]+)(\S+)`),
}

// withoutSecrets takes out what is not needed, and what somebody may have put a secret into
// that is in no Secret: variables, keys, options and settings that sound so, and annotations
// that are large or copies of objects. What it finds is hidden in what is written later too.
func (r *redactor) withoutSecrets(u *unstructured.Unstructured) {
	u.SetManagedFields(nil)
	if a := u.GetAnnotations(); a != nil {
		delete(a, corev1.LastAppliedConfigAnnotation)
		u.SetAnnotations(a)
	}
	if data, ok := u.Object["data"].(map[string]any); ok {
		for k, v := range data {
			text, _ := v.(string)
			if isSecretName(k) {
				r.found(text)
				data[k] = hidden
				continue
			}
			r.document(text)
			data[k] = r.settings(text)
		}
	}
	if data, ok := u.Object["binaryData"].(map[string]any); ok {
		for k := range data {
			data[k] = hidden
		}
	}
	r.walk(u.Object)
}

// walk goes to lists of variables, arguments and annotations, wherever a pod's template is.
func (r *redactor) walk(node any) {
	switch node := node.(type) {
	case map[string]any:
		r.variable(node)
		for k, v := range node {
			switch list, _ := v.([]any); k {
			case "args", "command":
				r.arguments(list)
			case "annotations":
				r.annotations(v)
			}
			r.walk(v)
		}
	case []any:
		for _, v := range node {
			r.walk(v)
		}
	}
}

// variable is one of a container, or a header of a probe.
func (r *redactor) variable(node map[string]any) {
	name, _ := node["name"].(string)
	value, ok := node["value"].(string)
	switch {
	case !ok:
	case soundsSecret.MatchString(name):
		r.found(value)
		node["value"] = hidden
	default:
		node["value"] = r.settings(value)
	}
}

// arguments are --name=value, or the name and the value one after the other.
func (r *redactor) arguments(list []any) {
	option := false
	for i := range list {
		text, _ := list[i].(string)
		isOption := strings.HasPrefix(text, "-")
		if option && !isOption {
			r.found(text)
			list[i] = hidden
		} else {
			list[i] = r.settings(text)
		}
		option = isOption && !strings.Contains(text, "=") && isSecretName(strings.TrimLeft(text, "-"))
	}
}

// maxAnnotation is what an annotation has that is no copy of something, in bytes.
const maxAnnotation = 256

func (r *redactor) annotations(node any) {
	all, _ := node.(map[string]any)
	for k, v := range all {
		text, _ := v.(string)
		if len(text) > maxAnnotation || strings.HasPrefix(text, "H4sI") || isDocument(text) || isSecretName(k) {
			all[k] = hidden // H4sI: gzip, in base64
			continue
		}
		all[k] = r.settings(text)
	}
}

func isDocument(text string) bool {
	text = strings.TrimSpace(text)
	return strings.ContainsAny(text, "{[\"") && strings.ContainsRune("{[\"", rune(text[0])) && json.Valid([]byte(text))
}

func (r *redactor) document(text string) {
	var document any
	if yaml.Unmarshal([]byte(text), &document) == nil {
		r.fields("", document, r.found)
	}
}

// settings are a text without the values of the settings in it that sound secret.
func (r *redactor) settings(text string) string {
	for _, s := range secretSettings {
		var out strings.Builder
		last := 0
		for _, m := range s.FindAllStringSubmatchIndex(text, -1) {
			if objectName.MatchString(text[m[4]:m[5]]) || strings.HasPrefix(text[m[3]:m[1]], hidden) {
				continue
			}
			r.found(text[m[3]:m[1]])
			out.WriteString(text[last:m[3]] + hidden)
			if last = m[1]; strings.ContainsRune("\n@", rune(text[last-1])) {
				last-- // a line, and a login, ends as it did
			}
		}
		text = out.String() + text[last:]
	}
	return text
}

// found notes a value of a setting: what stands in no Secret may be in the logs all the same.
// Numbers, yes and no and names of files are in any text.
func (r *redactor) found(value string) {
	value = strings.Trim(strings.TrimSpace(value), `"',\@`)
	_, notNumber := strconv.ParseFloat(value, 64)
	_, notBool := strconv.ParseBool(value)
	if len(value) >= minLine && notNumber != nil && notBool != nil && !strings.HasPrefix(value, "/") {
		r.add([]byte(value))
	}
}
