//go:build !pkcs11 || !cgo

package token

import (
	"errors"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Available reports whether this build can open tokens.
const Available = false

// Open says how to get a build that can.
func Open(u URI, _ []byte) (Key, error) {
	return nil, &fault.Error{
		Reason: fault.Refused, Op: "open key", Subject: u.String(),
		Err:  errors.New("this build of the program has no support for hardware tokens, which needs C libraries"),
		Hint: "build it with CGO_ENABLED=1 go build -tags pkcs11 ./bundler/cmd/vdo-bundle",
	}
}
