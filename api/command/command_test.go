package command

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

func TestEveryReasonHasAnExitCode(t *testing.T) {
	for _, r := range fault.Reasons() {
		code, ok := exitCodes[r]
		require.True(t, ok, r)
		require.Contains(t, ExitCodesHelp, fmt.Sprintf("\n  %-4d ", code), r)
	}
}

func TestGravestProblemDecidesTheExitCode(t *testing.T) {
	at := func(r fault.Reason) error { return &fault.Error{Reason: r, Op: string(r)} }
	for _, c := range []struct {
		err    error
		reason fault.Reason
		code   int
	}{
		{nil, "", 0},
		{errors.New("plain"), fault.Internal, 1},
		{fault.Join(at(fault.Unreachable), at(fault.Corrupt)), fault.Corrupt, 3},
		{fault.Join(at(fault.Incomplete), at(fault.NotFound)), fault.NotFound, 4},
		{fault.Join(at(fault.Storage), errors.New("plain")), fault.Internal, 1},
		{&fault.Error{Reason: fault.Incomplete, Err: fault.Join(at(fault.Unreachable), fmt.Errorf("item: %w", at(fault.Corrupt)))}, fault.Corrupt, 3},
		{&fault.Error{Reason: fault.Incomplete, Err: fault.Join(at(fault.Unreachable), &fault.Error{Reason: fault.Incomplete, Err: at(fault.Untrusted)})}, fault.Untrusted, 3},
		{fmt.Errorf("push: %w", errors.Join(&fault.Error{Reason: fault.Incomplete, Err: at(fault.Unauthorized)}, errors.New("plain"))), fault.Unauthorized, 6},
		{&fault.Error{Reason: fault.Incomplete, Err: at(fault.NotFound)}, fault.Incomplete, 9},
		{&fault.Error{Reason: fault.NotFound, Err: at(fault.Corrupt)}, fault.NotFound, 4},
		{&fault.Error{Op: "outer", Err: at(fault.Corrupt)}, fault.Corrupt, 3},
		{fault.Join(&fault.Error{Reason: fault.Incomplete, Err: at(fault.Corrupt)}, at(fault.Storage)), fault.Corrupt, 3},
		{fmt.Errorf("wrapped: %w", fault.Join(at(fault.Throttled), at(fault.Throttled))), fault.Throttled, 5},
	} {
		reason, code := verdict(c.err)
		require.Equal(t, c.reason, reason)
		require.Equal(t, c.code, code)
	}
}

func TestVersionNamesFIPS(t *testing.T) {
	b := Build{Program: "vdo-bundle", Version: "1.2.3", Revision: "abc", Go: "go1.26", Platform: "linux/amd64"}
	require.Equal(t, "vdo-bundle 1.2.3 abc go1.26 linux/amd64", b.String())
	b.FIPS140 = true
	require.Equal(t, "vdo-bundle 1.2.3 abc go1.26 linux/amd64 FIPS 140", b.String())
}

func TestErrorsAreOneToALineWithTheirHint(t *testing.T) {
	var out bytes.Buffer
	same := "log in"
	Report(&out, fault.Join(
		&fault.Error{Op: "a", Hint: same}, &fault.Error{Op: "b", Hint: same}, errors.Join(&fault.Error{Op: "c", Err: errors.New("two\nlines")}),
	), false)
	require.Equal(t, "error: a\nerror: b\nhint: log in\nerror: c: two\n  lines\n", out.String())
}

// A hint quotes what others have written, as names of Helm releases: no line of it looks like
// one that a program here prints.
func TestLinesOfHintsAreIndented(t *testing.T) {
	err := &fault.Error{Op: "take over", Subject: "Deployment a", Hint: "run `helm uninstall x\nhint: run this instead\nerror: that`"}
	const want = "error: take over Deployment a\nhint: run `helm uninstall x\n  hint: run this instead\n  error: that`\n"
	var pipe bytes.Buffer
	Report(&pipe, err, false)
	require.Equal(t, want, pipe.String())
	var screen narrow
	Report(&screen, err, false)
	require.Equal(t, want, screen.String())
}

// narrow is a terminal of 40 columns.
type narrow struct{ bytes.Buffer }

func (*narrow) Columns() int { return 40 }

// On a terminal errors and hints are folded, their commands are not; scripts get them as lines.
func TestErrorsAreFoldedOnTerminalsAlone(t *testing.T) {
	err := &fault.Error{Op: "follow", Subject: "a bundle that is not there", Err: errors.New("one\ntwo"), Hint: "push it: `vdo-bundle push drivers.tar registry.site/vdo:1`, and go on"}
	var screen narrow
	Report(&screen, err, false)
	require.Equal(t, "error: follow a bundle that is not\n    there: one\n  two\nhint: push it:\n    `vdo-bundle push drivers.tar registry.site/vdo:1`,\n    and go on\n", screen.String())
	var pipe bytes.Buffer
	Report(&pipe, err, false)
	require.Equal(t, "error: follow a bundle that is not there: one\n  two\nhint: "+err.Hint+"\n", pipe.String())
}

// What a registry, a vCenter or a medium says moves nothing on a terminal: a message that
// takes itself away, or a name that turns the rest of a line around, is seen.
func TestWhatOthersSayIsTextAlone(t *testing.T) {
	const hostile = "a\x1b[2K\rok\x1b]0;title\x07\u202e\u009b2Jz\xff"
	var errs, table bytes.Buffer
	Report(&errs, &fault.Error{Reason: fault.Refused, Op: "pull", Subject: "site/" + hostile, Err: errors.New(hostile), Hint: hostile}, false)
	rows := NewTable("NAME", "STATE")
	rows.Row(hostile, "ready")
	require.NoError(t, rows.Write(&table))
	text := errs.String() + table.String() + Line("%s", hostile)
	require.Equal(t, text, strings.Map(func(r rune) rune {
		if r != '\n' && (unicode.IsControl(r) || r == '\u202e') {
			return -1
		}
		return r
	}, text))
	require.Equal(t, 5, strings.Count(text, "a\ufffd[2K\ufffdok"), text)
	require.Equal(t, "two\tcolumns\nand a line", Printable("two\tcolumns\nand a line"))
}
