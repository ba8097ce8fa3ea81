package command

import (
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

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
