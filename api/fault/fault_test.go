package fault_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Each constant is in the list that orders reasons, once.
func TestReasonsAreAll(t *testing.T) {
	source, err := os.ReadFile("fault.go")
	require.NoError(t, err)
	var want []fault.Reason
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ Reason = "(\w+)"$`).FindAllStringSubmatch(string(source), -1) {
		want = append(want, fault.Reason(m[1]))
	}
	require.Greater(t, len(want), 15)
	require.ElementsMatch(t, want, fault.Reasons())
}

func TestErrorReadsOpSubjectWhy(t *testing.T) {
	why := errors.New("connection refused")
	for _, c := range []struct {
		name string
		err  *fault.Error
		want string
	}{
		{"all", &fault.Error{Op: "resolve", Subject: "a/b:1", Err: why}, "resolve a/b:1: connection refused"},
		{"no why", &fault.Error{Op: "resolve", Subject: "a/b:1"}, "resolve a/b:1"},
		{"password", &fault.Error{Op: "read", Subject: `"a=https://u:p%w@b/c"`, Err: why}, `read "a=https://***@b/c": connection refused`},
		{"password with @", &fault.Error{Subject: "a=https://u:p@w@b"}, "a=https://***@b"},
		{"token", &fault.Error{Subject: "https://TOKEN@b/c:1"}, "https://***@b/c:1"},
		{"port and digest", &fault.Error{Subject: "http://b:5000/c@sha256:1"}, "http://b:5000/c@sha256:1"},
		{"why only", &fault.Error{Err: why}, "connection refused"},
		{"reason only", &fault.Error{Reason: fault.Corrupt}, "Corrupt"},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, c.err.Error()) })
	}
}

func TestReasonAndHintAreFoundThroughWrapsAndJoins(t *testing.T) {
	inner := &fault.Error{Reason: fault.Unauthorized, Op: "get", Subject: "x", Hint: "log in"}
	err := fmt.Errorf("pull: %w", errors.Join(errors.New("plain"), inner))
	require.Equal(t, fault.Unauthorized, fault.ReasonOf(err))
	require.Equal(t, "log in", fault.HintOf(err))
	require.Equal(t, fault.Internal, fault.ReasonOf(errors.New("plain")))
	require.Empty(t, fault.ReasonOf(nil))
	require.Empty(t, fault.HintOf(nil))
}

func TestOuterReasonWins(t *testing.T) {
	err := &fault.Error{Reason: fault.Incomplete, Op: "push", Err: &fault.Error{Reason: fault.Unreachable, Hint: "try again"}}
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err))
	require.Equal(t, "try again", fault.HintOf(err))
}

func TestJoinSortsFlattensAndText(t *testing.T) {
	a := &fault.Error{Op: "a", Hint: "do a"}
	b := &fault.Error{Op: "b"}
	c := errors.New("c")
	joined := fault.Join(errors.Join(c, b), nil, a)
	require.Equal(t, "a (do a)\nb\nc", fault.Text(joined))
	same := &fault.Error{Op: "a2", Hint: "do a"}
	all := fault.Join(a, same, b, &fault.Error{Op: "c", Hint: "do a"})
	require.Equal(t, "a (do a)\na2\nb\nc (do a)", fault.Text(all))
	require.NoError(t, fault.Join(nil, nil))
	require.Same(t, a, fault.Join(nil, a))
	require.Empty(t, fault.Text(nil))
}

// The port of this end differs each time; a status with it would change with each retry.
func TestTheSameFaultOfAConnectionHasTheSameText(t *testing.T) {
	for text, want := range map[string]string{
		"lookup a: read udp 10.0.0.7:41234->10.0.0.10:53: refused":    "lookup a: read udp 10.0.0.10:53: refused",
		`Get "https://a/v2/": read tcp [::1]:4123->[::1]:5000: reset`: `Get "https://a/v2/": read tcp [::1]:5000: reset`,
	} {
		require.EqualError(t, &fault.Error{Op: "read", Err: errors.New(text)}, "read: "+want)
	}
}

func TestAdmissionHintTellsPoliciesApart(t *testing.T) {
	for text, want := range map[string]string{
		`pods "x" is forbidden: exceeded quota: q`:                                          "resource quota",
		"ValidatingAdmissionPolicy 'site' with binding 'site' denied request: no":           "an exception",
		"ValidatingAdmissionPolicy 'vdo-sip-hosts' with binding 'x' denied request: ":       "BUNDLE --sip",
		"ValidatingAdmissionPolicy 'vdo-operator-rights' with binding 'x' denied request: ": "--rbac-policy",
		"forbidden": "",
	} {
		hint := fault.AdmissionHint(errors.New(text))
		require.Contains(t, hint, want)
		require.Equal(t, want == "", hint == "")
	}
}

func TestFewNamesTheFirstAndCountsTheRest(t *testing.T) {
	require.Equal(t, "a, b", fault.Few([]string{"a", "b"}, 2))
	require.Equal(t, "a, b and 1 more", fault.Few([]string{"a", "b", "c"}, 2))
}

func TestAListKeepsFiftyAndCountsTheOthers(t *testing.T) {
	var l fault.List
	require.NoError(t, l.Join("read", "x"))
	for i := range 50 {
		l.Add(&fault.Error{Reason: fault.Incomplete, Op: "read", Subject: fmt.Sprint(i)})
		l.Add(nil)
	}
	require.Len(t, fault.All(l.Join("read", "x")), 50)
	l.Add(&fault.Error{Reason: fault.Incomplete})
	l.Add(&fault.Error{Reason: fault.Corrupt})
	err := l.Join("read", "x")
	require.Len(t, fault.All(err), 51)
	require.ErrorContains(t, err, "read x: 2 more problems")
	require.Equal(t, fault.Corrupt, fault.Gravest(err), "what is not listed counts")
}

func TestWhatATerminalActsOn(t *testing.T) {
	for _, r := range "\x00\a\b\t\n\r\x1b\x7f\u0085\u009b\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069" {
		require.True(t, fault.Control(r), "%U", r)
	}
	for _, r := range "aé 語'\\…\u00a0\u0301\u200d\ufffdא🙂" { // marks and joiners are part of words
		require.False(t, fault.Control(r), "%U", r)
	}
}

func TestQuotedWordsAreWhatAShellTakesBack(t *testing.T) {
	for word, want := range map[string]string{
		"drivers.tar": "drivers.tar", "": "''", "a b": "'a b'", "x$(id).tar.parts": "'x$(id).tar.parts'", "it's": `'it'\''s'`,
		"`id`;&|<>*?~!{}[]#\\\"": "'`id`;&|<>*?~!{}[]#\\\"'", "line\nend\x1b[2J'": `$'line\012end\033[2J\''`, "größe.tar": "größe.tar",
		"registry.site:5000/vdo/drivers@sha256:ab": "registry.site:5000/vdo/drivers@sha256:ab",
	} {
		require.Equal(t, want, fault.Quote(word))
		out, err := exec.CommandContext(t.Context(), "bash", "-c", "printf %s "+fault.Quote(word)).Output() //nolint:gosec // that is the test
		require.NoError(t, err)
		require.Equal(t, word, string(out))
	}
	require.Equal(t, "repair 'a b'", fault.Quote("repair", "a b"))
}
