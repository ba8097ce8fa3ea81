// Package command has the common parts of all command lines: the output of errors, exit codes,
// tables, `version`. The package flags below has their flags.
//
// A command writes its result to standard output, and progress, messages and errors to standard
// error, so that the output can be piped.
//
// An error is printed as lines "error: what: why" and "hint: what to do", one pair for each
// independent problem. Further lines of either are indented, so that no foreign text looks like an
// error or a hint. They are folded on a terminal and one line each elsewhere. If the result is
// requested as JSON, the error is one JSON object on standard error: {"error": {"reason",
// "exitCode", "problems": [{"reason", "message", "hint"}]}}.
package command

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

type problem struct {
	Reason  fault.Reason `json:"reason"`
	Message string       `json:"message"`
	Hint    string       `json:"hint,omitempty"`
}

// Report prints an error as text or as JSON; it prints nothing for nil.
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
		_ = Say(w, "error: %s", indented(p.Message)) // a failed write to standard error cannot be reported
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

// independent splits an error into its independent problems.
func independent(err error) []problem {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only outer levels are split
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

// isJoin tells errors.Join from fmt.Errorf with several %w: the text of the former is only its members' text.
func isJoin(err error, members []error) bool {
	return err.Error() == errors.Join(members...).Error()
}

func indented(s string) string { return strings.ReplaceAll(s, "\n", "\n  ") }

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Exit codes are part of the interface: scripts may rely on them.
const (
	ExitOK           = 0
	ExitInternal     = 1
	ExitUsage        = 2
	ExitVerification = 3
	ExitNotFound     = 4
	ExitNetwork      = 5
	ExitLogin        = 6
	ExitStorage      = 7
	ExitRefused      = 8
	ExitIncomplete   = 9
	ExitInterrupted  = 130
)

var exitCodes = map[fault.Reason]int{
	fault.Internal:           ExitInternal,
	fault.InvalidInput:       ExitUsage,
	fault.Untrusted:          ExitVerification,
	fault.Corrupt:            ExitVerification,
	fault.Expired:            ExitVerification,
	fault.Superseded:         ExitVerification,
	fault.NotFound:           ExitNotFound,
	fault.Unreachable:        ExitNetwork,
	fault.Throttled:          ExitNetwork,
	fault.CertificateInvalid: ExitNetwork,
	fault.Unauthorized:       ExitLogin,
	fault.Forbidden:          ExitLogin,
	fault.AccountLocked:      ExitLogin,
	fault.Storage:            ExitStorage,
	fault.Incompatible:       ExitRefused,
	fault.Refused:            ExitRefused,
	fault.Conflict:           ExitRefused,
	fault.Incomplete:         ExitIncomplete,
	fault.Interrupted:        ExitInterrupted,
}

// ExitCodesHelp is part of each program's help.
const ExitCodesHelp = `Exit codes:
  0    done
  1    a defect of this program
  2    wrong usage, or input that cannot be understood
  3    verification failed: untrusted, corrupt, expired or superseded
  4    something that was named is not there
  5    network: unreachable, throttled, or a certificate that is not trusted
  6    login: no or wrong credentials, or no permission
  7    local storage: full, read-only, not readable
  8    refused: no release fits, or something is there that must not be
  9    incomplete: a bundle lacks parts, or some items failed and the next run
       goes on; where one of them will fail again, its own code
  130  interrupted; running it again goes on`

// ExitCode returns the exit code for err; see [ExitCodesHelp].
func ExitCode(err error) int {
	_, code := verdict(err)
	return code
}

// verdict returns the reason and the exit code of an error. The gravest of several problems
// decides, including wrapped ones; see [fault.Gravest].
func verdict(err error) (fault.Reason, int) {
	if err == nil {
		return "", ExitOK
	}
	var reason fault.Reason
	for _, p := range independent(err) {
		if fault.Graver(p.Reason, reason) {
			reason = p.Reason
		}
	}
	code, ok := exitCodes[reason]
	if !ok {
		return reason, ExitInternal
	}
	return reason, code
}
