//go:build pkcs11 && cgo

package token

import (
	"crypto"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/ThalesGroup/crypto11"
	"github.com/miekg/pkcs11"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Open logs in to a token, until the program ends, and returns the private key.
func Open(u URI, ask func() (pin []byte, err error)) (crypto.Signer, error) {
	bad := func(reason fault.Reason, hint string, err error) (crypto.Signer, error) {
		return nil, &fault.Error{Reason: reason, Op: "open key", Subject: u.String(), Hint: hint, Err: err}
	}
	if u.Module == "" {
		return bad(fault.InvalidInput, "name the token's library with ?module-path=/path.so",
			errors.New("it is not known how to speak to the token"))
	}
	if _, err := os.Stat(u.Module); err != nil {
		return bad(fault.NotFound, "install the token's library, or correct module-path", err)
	}
	pin, err := ask()
	if err != nil {
		return nil, fmt.Errorf("open key %s: %w", u, err)
	}
	token, err := crypto11.Configure(&crypto11.Config{
		Path: u.Module, TokenLabel: u.Token, TokenSerial: u.Serial, SlotNumber: u.Slot, Pin: string(pin),
	})
	if err != nil {
		reason, hint := explain(err)
		return bad(reason, hint, errors.New(strings.ReplaceAll(err.Error(), string(pin), "…")))
	}
	var id, label []byte
	if len(u.ID) > 0 {
		id = u.ID
	}
	if u.Object != "" {
		label = []byte(u.Object)
	}
	signer, err := token.FindKeyPair(id, label)
	if err != nil || signer == nil {
		_ = token.Close()
		return bad(fault.NotFound, "list its objects with `pkcs11-tool --list-objects --login`",
			errors.New("the token has no private key of that name with its public key beside it"))
	}
	return signer, nil
}

func explain(err error) (fault.Reason, string) {
	var code pkcs11.Error
	if !errors.As(err, &code) {
		return fault.NotFound, "check that the token is there, and its label, serial or slot"
	}
	switch code {
	case pkcs11.CKR_PIN_INCORRECT, pkcs11.CKR_PIN_INVALID, pkcs11.CKR_PIN_LEN_RANGE:
		return fault.Unauthorized, "give the token's user PIN; several wrong ones lock it"
	case pkcs11.CKR_PIN_LOCKED:
		return fault.AccountLocked, "have the token's security officer unlock it"
	}
	return fault.Unreachable, "check that the token is connected and that its library works"
}
