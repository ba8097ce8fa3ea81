package strictyaml_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
)

type settings struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Name       string
	Count      int
	Until      time.Time
	Hosts      map[string]nested
}

type nested struct {
	CA string `yaml:"ca"`
}

const limit = 1000

var format = strictyaml.Format{Op: "read", APIVersion: "t/v1", Kind: "Settings", Limit: limit, Hint: "see the docs"}

const head = "apiVersion: t/v1\nkind: Settings\n"

func TestOneDocumentIsRead(t *testing.T) {
	var got settings
	require.NoError(t, format.Decode("f", []byte("---\n"+head+"name: a\ncount: 2\nhosts: {x: {ca: y}}\n"), &got))
	require.Equal(t, settings{APIVersion: "t/v1", Kind: "Settings", Name: "a", Count: 2, Hosts: map[string]nested{"x": {CA: "y"}}}, got)
	root, err := strictyaml.Parse([]byte("# first\na: 1\n"), limit)
	require.NoError(t, err)
	require.Equal(t, 2, root.Content[0].Line)
}

func TestWhatIsWrongHasItsLine(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want strictyaml.Error
	}{
		"empty":            {"", strictyaml.Error{Why: "it is empty"}},
		"comment":          {"# nothing\n", strictyaml.Error{Why: "it is empty"}},
		"too long":         {strings.Repeat("#", limit+1), strictyaml.Error{Why: "longer than 1000 bytes"}},
		"syntax":           {"name: a\ncount: [\n", strictyaml.Error{Line: 2, Why: "did not find expected node content", Hint: "correct the YAML"}},
		"second document":  {"name: a\n---\nname: b\n", strictyaml.Error{Line: 2, Why: "a second YAML document begins here", Hint: "keep one document in the file"}},
		"unknown key":      {head + "cuont: 1\n", strictyaml.Error{Line: 3, Why: "the key cuont is not known", Hint: "correct the YAML"}},
		"unknown key deep": {head + "hosts:\n  x:\n    key: 1\n", strictyaml.Error{Line: 5, Why: "the key key is not known", Hint: "correct the YAML"}},
		"twice":            {head + "name: a\nname: b\n", strictyaml.Error{Line: 4, Why: `mapping key "name" already defined at line 3`, Hint: "correct the YAML"}},
		"type":             {head + "count: many\n", strictyaml.Error{Line: 3, Why: "another kind of value is expected than str `many`", Hint: "correct the YAML"}},
		"several":          {head + "a: 1\nname: x\nb: 2\n", strictyaml.Error{Why: "line 3: the key a is not known; line 5: the key b is not known", Hint: "correct the YAML"}},
		"no value":         {head + "name:\ncount: 1\n", strictyaml.Error{Line: 3, Why: "the key name has no value: write one, or leave the key out", Hint: "correct the YAML"}},
		"fraction":         {head + "name: 1.9\ncount: 1.9\n", strictyaml.Error{Line: 4, Why: "another kind of value is expected than fraction `1.9`", Hint: "correct the YAML"}},
		"time":             {head + "until: '2026-01-01'\n", strictyaml.Error{Why: `"2026-01-01" is not a time: write 2026-01-01T00:00:00Z`, Hint: "correct the YAML"}},
		"list":             {head + "hosts: [a]\n", strictyaml.Error{Line: 3, Why: "another kind of value is expected than seq", Hint: "correct the YAML"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got *strictyaml.Error
			require.ErrorAs(t, format.Decode("f", []byte(c.text), &settings{}), &got)
			require.Equal(t, c.want, *got)
		})
	}
}

// A file of a newer version has keys that this program does not know: they are no misspellings.
func TestAnotherVersionIsToldBeforeItsKeys(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: t/v2\nkind: Settings\nnew: 1\n": `read f:1: apiVersion: "t/v2" is not t/v1`,
		"kind: Other\nnew: 1\n":                      `read f:1: kind: "Other" is not Settings`,
		"null\n":                                     `read f: kind: is missing: write Settings`,
		"kind: Settings\nnew: 1\n":                   `read f: apiVersion: is missing: write t/v1`,
	} {
		require.EqualError(t, format.Decode("f", []byte(text), &settings{}), want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(head + "name: a\ncount: 2\n"))
	f.Add([]byte("a: &a [*a, *a]\nb: !!binary x\n? {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v settings
		if err := format.Decode("f", data, &v); err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		_, err := strictyaml.Parse(data, limit)
		require.NoError(t, err)
	})
}
