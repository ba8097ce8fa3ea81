package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// TestMain serves as the meter where a test starts this binary as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "exec" {
		code, err := meter(os.Args[2:])
		if err != nil {
			code = 99
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// The meter adds up a program, its children, and orphans, which it ends; it passes the exit code on.
func TestTheMeterCountsChildrenAndOrphans(t *testing.T) {
	root, into := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module "+project+"\n"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "a", "b"), 0o700))
	const busy = `i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done`
	for name, script := range map[string]string{
		"itself": busy,
		"child":  `sh -c '` + busy + `'; true`,
		"orphan": `(sh -c 'echo $$ >orphan; ` + busy + `; sleep 600' &) ; while [ ! -s orphan ]; do :; done; sleep 1`,
	} {
		cmd := exec.Command(os.Args[0], "exec", "sh", "-c", script+`; printf + >>"$`+tier.ControlPlanes+`"; exit 3`)
		cmd.Dir, cmd.Env = filepath.Join(root, "a", "b"), append(os.Environ(), meterVariable+"="+into)
		out, err := cmd.CombinedOutput()
		require.ErrorContains(t, err, "exit status 3", "%s: %s", name, out)
		got, err := readUsage(into)
		require.NoError(t, err)
		use := got[filepath.Join("a", "b")]
		require.Greater(t, use.Seconds, 0.02, name)
		require.Positive(t, use.PeakMiB, name)
		require.Equal(t, 1, use.ControlPlanes, name)
	}
	pid, err := os.ReadFile(filepath.Join(root, "a", "b", "orphan"))
	require.NoError(t, err)
	require.NoDirExists(t, "/proc/"+strings.TrimSpace(string(pid)))
}

func TestEventsReadAsGoTestPrintsThem(t *testing.T) {
	var out strings.Builder
	e := &events{out: &out, text: map[string]*strings.Builder{}}
	for _, line := range []string{
		`{"Action":"output","Package":"p","Test":"TestOne","Output":"=== RUN   TestOne\n"}`,
		`{"Action":"output","Package":"p","Test":"TestOne","Output":"    one_test.go:7: want 1, got 2\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestOne","Elapsed":1.5}`,
		`{"Action":"output","Package":"p","Test":"TestTwo","Output":"fine\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestTwo","Elapsed":0.1}`,
		`{"Action":"output","Package":"p","Test":"TestThree","Output":"    three_test.go:9: skopeo is not installed\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestThree"}`,
		`{"Action":"output","Package":"p","Test":"TestFour","Output":"panic: four\n"}`,
		`{"Action":"output","Package":"p","Output":"FAIL\tp\t2s\n"}`,
		`{"Action":"fail","Package":"p"}`,
		`{"Action":"output","Package":"q","Output":"PASS\n"}`,
		`{"Action":"output","Package":"q","Output":"ok  \tq\t1s\n"}`,
		`{"Action":"pass","Package":"q"}`,
		`not JSON`,
	} {
		e.add([]byte(line))
	}
	require.Equal(t, `=== RUN   TestOne
    one_test.go:7: want 1, got 2
panic: four
FAIL	p	2s
ok  	q	1s
not JSON
`, out.String())
	r := result{Tests: e.tests}
	require.Len(t, r.Tests, 3)
	want := Test{Package: "p", Name: "TestThree", Action: "skip", Skip: "skopeo is not installed"}
	require.Equal(t, []Test{want}, r.skipped())
}

func TestSkippedTestsHaveToBeListed(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "test"), 0o700))
	list := filepath.Join(root, "test", "skips.tsv")
	require.NoError(t, os.WriteFile(list, []byte("# comment\np\tTestListed\tskopeo\n"), 0o600))
	for _, c := range []struct{ tier, test, reason, refused string }{
		{firstTier, "TestListed", "skopeo is not installed", ""},
		{firstTier, "TestOther", "no skopeo", "p TestOther was skipped (no skopeo) and is not in test/skips.tsv"},
		{firstTier, "TestLong", tier.Skipped + "all", ""},
		{firstTier, "TestPeer", tier.Skipped + "peers", "is not in test/skips.tsv"},
		{"all", "TestListed", "skopeo is not installed", "runs in no tier"},
		{"all", "TestLong", tier.Skipped + "upstream", "runs in no tier"},
	} {
		skipped := Test{Package: "p", Name: c.test, Action: "skip", Skip: c.reason}
		err := result{Tests: []Test{skipped}}.checkSkips(root, c.tier)
		if c.refused == "" {
			require.NoError(t, err, c.test)
		} else {
			require.ErrorContains(t, err, c.refused, c.test)
		}
	}
}

func TestWhatExceedsTheBudgetIsNamed(t *testing.T) {
	b := &Budget{rows: map[at]Row{{"p", firstTier}: {Seconds: 30, Planes: 1}}}
	for _, c := range []struct {
		use   Usage
		wall  float64
		scale float64
		want  string
	}{
		{Usage{Package: "p", Seconds: 46}, 9, 1, ""},
		{Usage{Package: "p", Seconds: 48}, 9, 1, "package p took 48 CPU seconds; its row in test/budget.tsv allows 47"},
		{Usage{Package: "p", Seconds: 80}, 19, 2, ""},
		{Usage{Package: "p", Seconds: 1, ControlPlanes: 2}, 1, 1, "started 2 control planes"},
		{Usage{Package: "p", Seconds: 1}, 11, 1, "test p TestSlow took 11 s"},
		{Usage{Package: "new", Seconds: 1}, 1, 1, "package new has no row for tier first"},
	} {
		r := result{Usage: map[string]Usage{c.use.Package: c.use}}
		r.Tests = []Test{{Package: "p", Name: "TestSlow", Seconds: c.wall}}
		if over := b.over(firstTier, r, c.scale, 1); c.want == "" {
			require.Empty(t, over)
		} else {
			require.ErrorContains(t, over[c.use.Package], c.want)
		}
	}
}

func TestRowsAreHeldAgainstTheTree(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	write("p/p.go", "package p\n\n")
	write("p/zz_generated.p.go", "package p\n\n\n\n")
	write("p/p_test.go", "package p\n")
	write("bin/x.go", "package x\n")
	write("test/budget.tsv", "calibration\t-\t0.5\t0\t0\t0\ntotal\tfirst\t10\t2\t20\t20\n")
	budget := func() *Budget {
		b, err := readBudget(root)
		require.NoError(t, err)
		return b
	}
	require.ErrorContains(t, budget().checkRows(root), "package p has no row")
	took := func(seconds float64, planes int) map[string]result {
		return map[string]result{firstTier: {Usage: map[string]Usage{
			"p": {Package: "p", Seconds: seconds, ControlPlanes: planes},
		}}}
	}
	require.NoError(t, budget().update(root, took(7.2, 1)))
	require.NoError(t, budget().checkRows(root))
	require.Equal(t, map[at]Row{{"p", firstTier}: {"p", firstTier, 8, 1, 2, 1}}, budget().rows)

	write("p/p.go", "package p\n\n\n")
	require.ErrorContains(t, budget().checkRows(root), "package p has 3 lines and 1 test lines; its row allows 2 and 1")
	require.NoError(t, budget().update(root, nil))
	require.Equal(t, map[at]Row{{"p", firstTier}: {"p", firstTier, 8, 1, 3, 1}}, budget().rows)

	require.NoError(t, budget().update(root, took(10.1, 0)))
	require.ErrorContains(t, budget().checkRows(root), "add up to 11 CPU seconds; the limit is 10")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "p")))
	require.ErrorContains(t, budget().checkRows(root), "a row for p, which does not exist")
	write("test/budget.tsv", "p\tfirst\t1\n")
	_, err := readBudget(root)
	require.ErrorContains(t, err, "want 6 cells between tabs")
}
