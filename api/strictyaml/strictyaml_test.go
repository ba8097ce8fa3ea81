package strictyaml_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
)

type settings struct {
	Name  string            `yaml:"name"`
	Count int               `yaml:"count"`
	Hosts map[string]nested `yaml:"hosts"`
}

type nested struct {
	CA string `yaml:"ca"`
}

const limit = 1000

func TestOneDocumentIsRead(t *testing.T) {
	var got settings
	require.NoError(t, strictyaml.Decode([]byte("---\nname: a\ncount: 2\nhosts: {x: {ca: y}}\n"), limit, &got))
	require.Equal(t, settings{Name: "a", Count: 2, Hosts: map[string]nested{"x": {CA: "y"}}}, got)
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
		"unknown key":      {"name: a\ncuont: 1\n", strictyaml.Error{Line: 2, Why: "the key cuont is not known", Hint: "correct the YAML"}},
		"unknown key deep": {"hosts:\n  x:\n    key: 1\n", strictyaml.Error{Line: 3, Why: "the key key is not known", Hint: "correct the YAML"}},
		"twice":            {"name: a\nname: b\n", strictyaml.Error{Line: 2, Why: `mapping key "name" already defined at line 1`, Hint: "correct the YAML"}},
		"type":             {"count: many\n", strictyaml.Error{Line: 1, Why: "another kind of value is expected than str `many`", Hint: "correct the YAML"}},
		"several":          {"a: 1\nname: x\nb: 2\n", strictyaml.Error{Why: "line 1: the key a is not known; line 3: the key b is not known", Hint: "correct the YAML"}},
		"list":             {"hosts: [a]\n", strictyaml.Error{Line: 1, Why: "another kind of value is expected than seq", Hint: "correct the YAML"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got *strictyaml.Error
			require.ErrorAs(t, strictyaml.Decode([]byte(c.text), limit, &settings{}), &got)
			require.Equal(t, c.want, *got)
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("name: a\ncount: 2\n"))
	f.Add([]byte("a: &a [*a, *a]\nb: !!binary x\n? {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v settings
		if err := strictyaml.Decode(data, limit, &v); err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		_, err := strictyaml.Parse(data, limit)
		require.NoError(t, err)
	})
}
