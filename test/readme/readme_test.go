package readme_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/readme"
)

const text = `# A program

Words.

## How to

~~~
$ vdo-bundle pull \
    -o a.tar
pull: 3 items, 1.0 kB
…
sha256:aaaaaaaaaaaa a.tar
$ ls
a.tar
~~~

   ~~~
   kubectl get nodes
   # a remark
   kubectl get pods \
     -A
   ~~~

~~~
key: value
~~~
`

func TestBlocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "README.md")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "~~~", "```")), 0o600))
	blocks, err := readme.Blocks(path, "kubectl")
	require.NoError(t, err)
	require.Len(t, blocks, 2)
	require.Equal(t, "How to", blocks[0].Section)
	require.Equal(t, []readme.Command{
		{Line: 8, Text: "vdo-bundle pull -o a.tar", Output: []string{"pull: 3 items, 1.0 kB", "…", "sha256:aaaaaaaaaaaa a.tar"}},
		{Line: 13, Text: "ls", Output: []string{"a.tar"}},
	}, blocks[0].Commands)
	require.Equal(t, []readme.Command{{Line: 18, Text: "kubectl get nodes"}, {Line: 20, Text: "kubectl get pods -A"}}, blocks[1].Commands)
}

func TestHolds(t *testing.T) {
	all := []string{"pull: 3 items, 1.0 kB", "sha256:aaaaaaaaaaaa a.tar", "10 images, 1.0 MB"}
	some := append([]string{"…"}, all...)
	for name, c := range map[string]struct {
		shown, got []string
		says       string
	}{
		"the same":            {all, []string{"sha256:bbbbbbbbbbbb a.tar", "10 images, 1.2 MB"}, ""},
		"by two streams":      {all, []string{"10 images, 1.2 MB", "pull: 10% (1 B of 2 B)", "sha256:bbbbbbbbbbbb a.tar"}, ""},
		"more where … is":     {some, []string{"warning", "sha256:bbbbbbbbbbbb a.tar", "10 images, 1.2 MB"}, ""},
		"nothing is shown":    {nil, []string{"warning"}, ""},
		"another name":        {some, []string{"sha256:bbbbbbbbbbbb b.tar", "10 images, 1.2 MB"}, "does not come"},
		"another number":      {some, []string{"sha256:bbbbbbbbbbbb a.tar", "11 images, 1.2 MB"}, "does not come"},
		"once where twice is": {append(all[1:], all[1]), []string{"sha256:bbbbbbbbbbbb a.tar", "10 images, 1.2 MB"}, "does not come"},
		"more":                {all, []string{"sha256:bbbbbbbbbbbb a.tar", "10 images, 1.2 MB", "warning"}, "not shown"},
	} {
		t.Run(name, func(t *testing.T) {
			err := readme.Holds(c.shown, c.got)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}
