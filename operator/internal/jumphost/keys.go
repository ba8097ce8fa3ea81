package jumphost

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

const minRSABits = 2048

// AuthorizedKey returns a public key as one line of authorized_keys. It refuses options; sshd refuses weak
// keys.
func AuthorizedKey(line string) (string, error) {
	line = strings.TrimSpace(line)
	public, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	switch {
	case err != nil || len(rest) > 0 || strings.ContainsAny(line, "\n\r"):
		return "", errors.New("it is not one line of authorized_keys")
	case len(options) > 0:
		return "", fmt.Errorf("it has options (%.80q), which are not supported", options)
	}
	key := strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(public)), "\n")
	return strings.TrimSpace(key + " " + comment), nil
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
