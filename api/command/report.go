// Package command is what the command lines of all programs have in common besides
// their flags, which are in the package flags below: how errors are printed, which exit
// code each ends with, how tables look, what `version` says.
//
// What a command found or made goes to standard output; progress, messages and errors go
// to standard error, so that the output can be piped.
//
// An error is printed as lines "error: what: why" and "hint: what to do", one pair
// for each independent problem, and further lines of either are indented: no text of others
// looks like an error or a hint of its own; on a terminal they are folded at its width, elsewhere each is
// one line. Where the result is requested as JSON it is one JSON
// object on standard error: {"error": {"reason", "exitCode", "problems": [{"reason",
// "message", "hint"}]}}.
package command

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// problem is one fault as JSON.
type problem struct {
	Reason  fault.Reason `json:"reason"`
	Message string       `json:"message"`
	Hint    string       `json:"hint,omitempty"`
}

// Report prints an error for people, or as JSON; nothing for nil.
func Report(w io.Writer, err error, asJSON bool) {
	if err == nil {
		return
	}
	problems := independent(err)
	if asJSON {
		reportJSON(w, err, problems)
		return
	}
	for i, p := range problems {
		_ = Say(w, "error: %s", indented(p.Message)) // no one is left to hear of it
		last := i == len(problems)-1 || problems[i+1].Hint != p.Hint
		if p.Hint != "" && last {
			_ = Say(w, "hint: %s", indented(p.Hint))
		}
	}
}

func reportJSON(w io.Writer, err error, problems []problem) {
	type body struct {
		Reason   fault.Reason `json:"reason"`
		ExitCode int          `json:"exitCode"`
		Problems []problem    `json:"problems"`
	}
	reason, code := verdict(err)
	_ = WriteJSON(w, map[string]body{"error": {reason, code, problems}})
}

// independent parts an error into its independent problems.
func independent(err error) []problem {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only outer levels are parted
		if _, wraps := err.(interface{ Is(error) bool }); !wraps && isJoin(err, joined.Unwrap()) {
			var out []problem
			for _, e := range joined.Unwrap() {
				out = append(out, independent(e)...)
			}
			return out
		}
	}
	return []problem{{Reason: cmp.Or(fault.Gravest(err), fault.Internal), Message: err.Error(), Hint: fault.HintOf(err)}}
}

// isJoin tells errors.Join from fmt.Errorf with several %w: the former's text is
// its members' text and nothing else.
func isJoin(err error, members []error) bool {
	return err.Error() == errors.Join(members...).Error()
}

func indented(s string) string { return strings.ReplaceAll(s, "\n", "\n  ") }

// WriteJSON writes a value as people read JSON.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
