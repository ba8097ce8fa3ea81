package cli

import (
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Exit codes. They are part of the interface: scripts may rely on them.
const (
	exitOK           = 0
	exitInternal     = 1
	exitUsage        = 2
	exitVerification = 3
	exitNotFound     = 4
	exitNetwork      = 5
	exitLogin        = 6
	exitStorage      = 7
	exitRefused      = 8
	exitIncomplete   = 9
	exitInterrupted  = 130
)

// exitCodes maps every reason to the code that the program ends with.
var exitCodes = map[fault.Reason]int{
	fault.Internal:           exitInternal,
	fault.InvalidInput:       exitUsage,
	fault.Untrusted:          exitVerification,
	fault.Corrupt:            exitVerification,
	fault.Expired:            exitVerification,
	fault.Superseded:         exitVerification,
	fault.NotFound:           exitNotFound,
	fault.Unreachable:        exitNetwork,
	fault.Throttled:          exitNetwork,
	fault.CertificateInvalid: exitNetwork,
	fault.Unauthorized:       exitLogin,
	fault.Forbidden:          exitLogin,
	fault.AccountLocked:      exitLogin,
	fault.Storage:            exitStorage,
	fault.Incompatible:       exitRefused,
	fault.Refused:            exitRefused,
	fault.Conflict:           exitRefused,
	fault.Incomplete:         exitIncomplete,
	fault.Interrupted:        exitInterrupted,
}

// exitCodesHelp is shown by the help of the program.
const exitCodesHelp = `Exit codes:
  0    done
  1    a defect of this program
  2    wrong usage, or input that cannot be understood
  3    verification failed: untrusted, corrupt, expired or superseded
  4    something that was named is not there
  5    network: unreachable, throttled, or a certificate that is not trusted
  6    login: no or wrong credentials, or no permission
  7    local storage: full, read-only, not readable
  8    refused: no release fits, or something is there that must not be
  9    incomplete: a bundle lacks parts, or some items failed and the next run goes on;
       where one of them will fail again, its own code
  130  interrupted; running it again goes on`

// verdict returns the reason and the exit code of an error: of several problems, those
// of the gravest, also where they are inside of another; see [fault.Gravest].
func verdict(err error) (fault.Reason, int) {
	if err == nil {
		return "", exitOK
	}
	var reason fault.Reason
	for _, p := range independent(err) {
		if fault.Graver(p.Reason, reason) {
			reason = p.Reason
		}
	}
	code, ok := exitCodes[reason]
	if !ok {
		return reason, exitInternal
	}
	return reason, code
}
