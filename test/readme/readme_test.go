package readme_test

import (
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/readme"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
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

// readmes returns the pages for people who use or change the project, by path from the root.
func readmes(t *testing.T) map[string]string {
	out := map[string]string{}
	for _, name := range git(t, "ls-files", "README.md", "*/README.md", "*/docs/*.md", ".github/*.md") {
		data, err := os.ReadFile(filepath.Join(toolchain.Root(), name))
		require.NoError(t, err)
		out[name] = string(data)
	}
	require.Greater(t, len(out), 8)
	return out
}

// git returns the words that git prints. It skips the test where git refuses, as in an unpacked archive.
func git(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "safe.directory=*"}, args...)...)
	cmd.Dir = toolchain.Root()
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("cannot ask git: %v", err)
	}
	return strings.Fields(string(out))
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	all := readmes(t)
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			u, err := url.Parse(m[1])
			require.NoError(t, err, "%s: %s", name, m[1])
			if u.IsAbs() {
				continue
			}
			to := name
			if u.Path != "" {
				to = filepath.Join(filepath.Dir(name), filepath.FromSlash(u.Path))
				_, err = os.Stat(filepath.Join(toolchain.Root(), to))
				require.NoError(t, err, "%s links to %s", name, m[1])
			}
			if u.Fragment != "" {
				require.Contains(t, anchors(all[to]), u.Fragment, "%s links to %s", name, m[1])
			}
		}
	}
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noSign  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names under which a README's headings can be linked to.
func anchors(text string) (out []string) {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		out = append(out, strings.ReplaceAll(noSign.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return out
}

// A page names only targets of the Makefile.
func TestMakeTargetsExist(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(toolchain.Root(), "Makefile"))
	require.NoError(t, err)
	for name, text := range readmes(t) {
		for _, m := range makeCommand.FindAllStringSubmatch(text, -1) {
			require.Regexp(t, `(?m)^`+m[1]+`:`, string(data), "%s names make %s", name, m[1])
		}
	}
}

var makeCommand = regexp.MustCompile("(?m)(?:`|^|[A-Z]+=\\S+ )make ([a-z-]+)")

var testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)

func TestTestsThatAreNamedAreThere(t *testing.T) {
	exists, named := tests(t), 0
	for name, text := range readmes(t) {
		for _, test := range testName.FindAllString(text, -1) {
			named++
			require.True(t, exists[test], "%s names the test %s", name, test)
		}
	}
	require.Positive(t, named)
}

// tests returns the names of all tests.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, line := range git(t, "grep", "-hoE", "^func (Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*", "--", "*_test.go") {
		out[line] = true
	}
	return out
}

// A path in backticks that begins with a folder of the top level is one that is there.
func TestPathsThatAreNamedAreThere(t *testing.T) {
	path := regexp.MustCompile("`((?:api|bundler|deploy|matrix|operator|scripts|test)/[A-Za-z0-9_./-]+)`")
	for name, text := range readmes(t) {
		for _, m := range path.FindAllStringSubmatch(text, -1) {
			_, err := os.Stat(filepath.Join(toolchain.Root(), m[1]))
			if err != nil {
				_, err = os.Stat(filepath.Join(toolchain.Root(), filepath.Dir(name), m[1]))
			}
			require.NotErrorIs(t, err, fs.ErrNotExist, "%s names %s", name, m[1])
		}
	}
}
