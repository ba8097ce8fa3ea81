package vdoctl

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// redactor takes secret values out of texts: as they are, in base64 wherever they are in
// what was encoded, and escaped as JSON, Go and URLs do.
type redactor struct {
	values map[string]bool
	built  *strings.Replacer // of the values as they are; nil where there are new ones
}

func newRedactor() *redactor { return &redactor{values: map[string]bool{}} }

const (
	// A shorter value is in half of all words.
	minSecret = 4
	// Larger ones are looked for by their lines.
	maxWhole = 64 << 10
	hidden   = "[hidden]"
)

// setting is a line of a configuration file with a value: key = "value", key: value.
var setting = regexp.MustCompile(`(?m)^\s*"?([\w.\[\]-]+)"?\s*[=:]\s*"?(.*?)"?,?\s*$`)

// soundsSecret tells by their names fields, keys and variables that have secrets.
var soundsSecret = regexp.MustCompile(`(?i)pass|secret|token|credential|private|^auth$`)

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
		r.fields("", document)
	}
	for _, m := range setting.FindAllStringSubmatch(text, -1) {
		if soundsSecret.MatchString(m[1]) {
			r.one(m[2])
			r.one(strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(m[2]))
		}
	}
	if strings.Contains(text, "PRIVATE KEY-----") {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-----") {
				r.one(line)
			}
		}
	}
}

// fields notes the texts of a document whose keys sound secret. The auth of a registry's
// login is NAME:PASSWORD in base64.
func (r *redactor) fields(key string, node any) {
	switch node := node.(type) {
	case map[string]any:
		for k, v := range node {
			r.fields(k, v)
		}
	case []any:
		for _, v := range node {
			r.fields(key, v)
		}
	case string:
		if !soundsSecret.MatchString(key) {
			return
		}
		r.one(node)
		if login, err := base64.StdEncoding.DecodeString(node); err == nil {
			if _, password, ok := strings.Cut(string(login), ":"); ok {
				r.one(password)
			}
		}
	}
}

// one notes a value, in all the forms that it may have in a file.
func (r *redactor) one(text string) {
	if len(text) < minSecret {
		return
	}
	r.values[text] = true
	quoted, _ := json.Marshal(text) //nolint:errchkjson // a text can be written: with HTML's signs escaped, and below without
	for _, form := range []string{string(quoted), strconv.Quote(text), strconv.QuoteToASCII(text)} {
		r.values[form[1:len(form)-1]] = true
	}
	r.values[url.QueryEscape(text)] = true
	r.values[url.PathEscape(text)] = true
	for _, form := range inBase64(text) {
		r.values[form] = true
	}
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
		all := make([]string, 0, len(r.values))
		for v := range r.values {
			all = append(all, v)
		}
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
