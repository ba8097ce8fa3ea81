package render

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ini writes the storage driver's dialect of INI (gopkg.in/gcfg.v1). Section names and values are always quoted,
// because an unquoted # or ; starts a comment. Inside quotes only \\ \" \n \t are escapes; the reader drops carriage
// returns.
type ini struct{ strings.Builder }

func (w *ini) section(kind, name string) {
	if w.Len() > 0 {
		w.WriteByte('\n')
	}
	if name == "" {
		fmt.Fprintf(w, "[%s]\n", kind)
		return
	}
	fmt.Fprintf(w, "[%s %s]\n", kind, iniQuote(name))
}

func (w *ini) set(key, value string) { fmt.Fprintf(w, "%s = %s\n", key, iniQuote(value)) }

func (w *ini) setUnlessEmpty(key, value string) {
	if value != "" {
		w.set(key, value)
	}
}

var iniEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`)

func iniQuote(s string) string { return `"` + iniEscapes.Replace(s) + `"` }

// iniCan returns why a value cannot be written, or nil.
func iniCan(s string) error {
	switch {
	case !utf8.ValidString(s):
		return errors.New("is not UTF-8 text")
	case strings.ContainsRune(s, 0):
		return errors.New("has a NUL character")
	case strings.ContainsRune(s, '\r'):
		return errors.New("has a carriage return")
	}
	return nil
}

// ConfiguredClusterID returns the cluster-id of section Global in a csi-vsphere.conf, whoever wrote it, or "". As in
// the driver, case does not matter and the last one counts.
func ConfiguredClusterID(conf []byte) string {
	id := ""
	for _, s := range readINI(conf) {
		if s.section == "global" && s.key == "clusterid" {
			id = s.value
		}
	}
	return id
}

// iniUnquote reads a value: quotes may start and end anywhere, and a comment outside of them ends it.
func iniUnquote(s string) string {
	var out strings.Builder
	quoted, kept := false, 0
	s = strings.TrimLeft(s, " \t")
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			out.WriteByte(iniUnescape(s[i]))
			kept = out.Len()
		case c == '"':
			quoted = !quoted
			kept = out.Len()
		case !quoted && (c == '#' || c == ';'):
			return out.String()[:kept]
		default:
			out.WriteByte(c)
			if quoted || (c != ' ' && c != '\t' && c != '\r') {
				kept = out.Len()
			}
		}
	}
	return out.String()[:kept]
}

func iniUnescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	}
	return c
}
