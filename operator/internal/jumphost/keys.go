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
)

const minRSABits = 2048

// AuthorizedKey returns a public key as one line of authorized_keys. It refuses options, certificates and
// weak keys.
func AuthorizedKey(line string) (string, error) {
	line = strings.TrimSpace(line)
	public, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	switch {
	case strings.Contains(line, "PRIVATE KEY"):
		return "", errors.New("it is a private key: replace it, since it is no secret any more")
	case err != nil || len(rest) > 0 || strings.ContainsAny(line, "\n\r"):
		return "", errors.New("it is not one line of authorized_keys")
	case len(options) > 0:
		return "", fmt.Errorf("it has options (%.80q), which are not supported", options)
	}
	if err := strong(public); err != nil {
		return "", err
	}
	key := strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(public)), "\n")
	return strings.TrimSpace(key + " " + comment), nil
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

// IsHostKey reports whether data is a private key that sshd takes.
func IsHostKey(data []byte) bool {
	_, err := ssh.ParsePrivateKey(data)
	return err == nil
}

// NewHostKey makes a host key, in OpenSSH's PEM.
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
