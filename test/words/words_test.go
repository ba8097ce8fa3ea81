package words

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/baseline"
)

const base = "6bd6fdd" // the last commit whose subject is not checked

var (
	messages  = regexp.MustCompile(`^(api|bundler|matrix|operator)/.*\.go$`)
	manifests = regexp.MustCompile(`^deploy/(sip/)?(monitoring/)?[\w-]+\.(yaml|json)$`)
)

func TestProseIsPlain(t *testing.T) {
	found := baseline.Found{}
	root := os.DirFS("../..")
	require.NoError(t, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		if d.IsDir() && slices.Contains([]string{"bin", "dist", ".git", "operator/docs/reference"}, name) { // generated
			return fs.SkipDir
		}
		isChecked := strings.HasSuffix(name, ".md") || manifests.MatchString(name)
		if !isChecked && (!messages.MatchString(name) || strings.HasSuffix(name, "_test.go")) {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		require.NoError(t, err)
		for _, f := range check(t, string(text), filepath.Ext(name)) {
			key := name + "\t" + f.Rule
			found[key] = append(found[key], fmt.Sprintf("%s:%d: %s", name, f.Line, f.Text))
		}
		return nil
	}))
	baseline.Check(t, "findings.tsv", found)
}

func check(t *testing.T, text, ext string) []Finding {
	switch ext {
	case ".md":
		return Markdown(text)
	case ".yaml", ".json":
		return Shipped(text)
	}
	found, err := Go(text)
	require.NoError(t, err, text)
	return found
}

func TestCommitSubjects(t *testing.T) {
	out, err := exec.Command("git", "log", "--no-merges", "--format=%h %s", base+"..HEAD").CombinedOutput()
	if err != nil {
		t.Skipf("cannot read the commits since %s: %v: %s", base, err, out)
	}
	for line := range strings.Lines(string(out)) {
		if hash, s, _ := strings.Cut(strings.TrimSpace(line), " "); !IsSubject(s) {
			t.Errorf("%s: write `area: verb object`, at most %d characters, no full stop at the end: %q", hash, maxSubject, s)
		}
	}
}

func TestRules(t *testing.T) {
	words, help := strings.Repeat("word ", maxWords-1), strings.Repeat("x", maxHelp)
	for text, want := range map[string]string{
		"The operator deletes pods. vdoctl shows them.":          "",
		"It is installed anew.":                                  "1 banned-word",
		"Mended, and nobody\nmends it.":                          "1 banned-word, 1 banned-word, 1 banned-word",
		"The mending\nwas asked\nfor.":                           "1 banned-word, 1 banned-word",
		"It recommends welfare to no more than 3.":               "",
		"What is installed is kept.":                             "1 banned-word, 1 sentence-start",
		"Fine. That is a start.\nOf those, one. Whatever.":       "1 sentence-start, 2 sentence-start",
		"**Where it fails**, wait. See what, where and of whom.": "1 sentence-start",
		words + "– end. vdoctl ends.":                            "",
		words + "the end.":                                       "1 long-sentence",
		"Short one.\nThe " + words + "`code\nspan`.":             "2 long-sentence",
		words + "`a code span`.":                                 "",
		words + "e.g. Antrea.":                                   "1 long-sentence",
		"See [the anew page](https://x.y/mend?a=anew).":          "1 banned-word",
		"# What is amiss here\n\nFine.\n\nIt is made\nanew.":     "5 banned-word",
		"- one\n- anew\n  and\n  anew\n- " + words:               "2 banned-word, 2 banned-word",
		"Fine:\n```sh\nanew\n```\nanew\n\n  ~~~\n  anew\n  ~~~":  "5 banned-word",
		"> anew\n\n| What | b |\n|---|:--|\n| `a | b` | anew |":  "1 banned-word, 5 banned-word",
	} {
		require.Equal(t, want, rules(Markdown(text)), text)
	}
	for code, want := range map[string]string{
		`"it is made anew"`:                                       "2 banned-word",
		`"What is it?\nIt is made\nanew"`:                         "2 sentence-start, 2 banned-word",
		`"it is " + f("the pods are mended") + " made" + " anew"`: "2 banned-word, 2 banned-word",
		"1 + 2*len(`one\ntwo three four\n\nit is anew`)":          "2 banned-word",
		"`An example is below:\n  make it all anew`":              "",
		`"apply deploy/rbac.yaml of this " + "release"`:           "2 repository-path",
		"a // It is made anew.":                                   "2 banned-word",
		"a // +a:marker anew":                                     "",
		`a{Short: "` + help + `"}`:                                "",
		`a{Short: "x` + help + `"}`:                               "2 long-help",
	} {
		require.Equal(t, want, rules(check(t, "package a\nvar x = "+code, ".go")), code)
	}
	for line, want := range map[string]string{
		"summary: {{ $labels.name }} is made anew.":           "1 banned-word",
		"\n  - message: 'What is refused'":                    "2 sentence-start",
		`  "description": "` + words + `{{ a | b c }}",`:      "",
		`description: "` + words + `{{ a | b c }} end."`:      "1 long-sentence",
		"expr: made anew\nmessageExpression: \"'made anew'\"": "",
	} {
		require.Equal(t, want, rules(Shipped(line)), line)
	}
	for s, want := range map[string]bool{
		"api/trust, vdoctl: verify keys":             true,
		"test: " + strings.Repeat("x", maxSubject-6): true,
		"test: " + strings.Repeat("x", maxSubject-5): false,
		"vdoctl: Verify keys":                        false,
		"vdoctl: verify keys.":                       false,
		"verify keys":                                false,
	} {
		require.Equal(t, want, IsSubject(s), s)
	}
}

// rules returns the lines and the rules that they break.
func rules(found []Finding) string {
	var out []string
	for _, f := range found {
		out = append(out, fmt.Sprint(f.Line, " ", f.Rule))
	}
	return strings.Join(out, ", ")
}
