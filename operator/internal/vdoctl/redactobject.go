package vdoctl

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// secretKey is a name that sounds secret, in a text.
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

// document notes what of a text in YAML or JSON sounds secret.
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
