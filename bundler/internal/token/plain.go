//go:build !pkcs11 || !cgo

package token

import (
	"crypto"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Open returns a fault that says how to build with token support.
func Open(u URI, _ func() ([]byte, error)) (crypto.Signer, error) {
	return nil, fault.Errorf(fault.Refused, "open key", u.String(),
		"use a build with CGO_ENABLED=1 and -tags pkcs11",
		"this build of the program has no support for hardware tokens, which needs C libraries")
}
