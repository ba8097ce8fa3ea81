package jumphost

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// ParseAuthorizedKey reads one line as in authorized_keys. Options are refused, since one
// that is passed over would allow what it was to forbid; so are certificates and keys that
// are too weak.
func ParseAuthorizedKey(line string) (Key, error) {
	bad := func(err error, hint string) (Key, error) {
		return Key{}, &fault.Error{Reason: fault.InvalidInput, Op: "read public key", Err: err, Hint: hint}
	}
	line = strings.TrimSpace(line)
	public, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	switch {
	case strings.Contains(line, "PRIVATE KEY"):
		return bad(errors.New("it is a private key"), "write the public key, and replace this one, which is no secret any more")
	case err != nil || len(rest) > 0 || strings.ContainsAny(line, "\n\r"):
		return bad(errors.New("it is not one line of authorized_keys"), "write the line of the .pub file, such as `ssh-ed25519 AAAA… name`")
	case len(options) > 0:
		return bad(fmt.Errorf("it has options (%.80q), which are not supported", options), "write the key without options")
	case strings.ContainsFunc(comment, isControl):
		return bad(errors.New("its comment has characters that cannot be printed"), "write another comment")
	}
	if err := strong(public); err != nil {
		return bad(err, "make a key with `ssh-keygen -t ed25519`")
	}
	return Key{Public: public, Comment: comment}, nil
}

func strong(key ssh.PublicKey) error {
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256:
		return nil
	case ssh.KeyAlgoRSA:
		if c, ok := key.(ssh.CryptoPublicKey); ok {
			if k, ok := c.CryptoPublicKey().(*rsa.PublicKey); ok && k.N.BitLen() >= minRSABits {
				return nil
			}
		}
		return fmt.Errorf("it is an RSA key of fewer than %d bits", minRSABits)
	}
	return fmt.Errorf("keys of type %.80s are not accepted", key.Type())
}

// ParseHostKey reads a private key, of the server itself or for hosts; name is the file's,
// for errors, which hold nothing of the key.
func ParseHostKey(name string, data []byte) (ssh.Signer, error) {
	signer, err := ssh.ParsePrivateKey(data)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, badKey(name, "it is encrypted", "remove the passphrase with `ssh-keygen -p`: a Secret has no use for one")
	case err != nil:
		return nil, badKey(name, "it is not a private key", "give a private key in PEM, as `ssh-keygen -t ed25519` makes one")
	}
	if err := strong(signer.PublicKey()); err != nil {
		return nil, badKey(name, err.Error(), "make a key with `ssh-keygen -t ed25519`")
	}
	return signer, nil
}

func badKey(name, why, hint string) error {
	return &fault.Error{Reason: fault.InvalidInput, Op: "read private key", Subject: name, Err: errors.New(why), Hint: hint}
}

// NewHostKey makes a host key: the content of a file of host-keys, in OpenSSH's PEM.
func NewHostKey() ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a host key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, fmt.Errorf("make a host key: %w", err)
	}
	return pem.EncodeToMemory(block), nil
}
