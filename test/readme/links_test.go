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

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// readmes returns the pages for people who use or change the project, by path from the root.
func readmes(t *testing.T) map[string]string {
	t.Helper()
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
