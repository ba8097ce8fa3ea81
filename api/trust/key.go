package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Key is a public key and when its signatures count. It is made by [NewKey].
type Key struct {
	id                  string
	public              crypto.PublicKey
	fingerprint         string // hex sha256 of the PKIX form: what makes keys distinct
	notBefore, notAfter time.Time
	revoked             bool
}

// KeyOptions bound a key. The zero value leaves it unbounded.
type KeyOptions struct {
	NotBefore, NotAfter time.Time // zero: no bound
	Revoked             bool
}

const (
	maxKeyFile = 64 << 10
	maxKeyID   = 63
	minRSABits = 2048
	maxRSABits = 16384
)

// NewKey reads a public key in PEM (PKIX, as cosign.pub, or PKCS #1). The id names
// it in messages.
func NewKey(id string, publicPEM []byte, o KeyOptions) (Key, error) {
	bad := func(why error, hint string) (Key, error) {
		return Key{}, &fault.Error{
			Reason: fault.InvalidInput, Op: "read public key", Subject: fmt.Sprintf("%q", id), Hint: hint, Err: why,
		}
	}
	if err := checkID(id); err != nil {
		return bad(err, "give each key an id of 1 to 63 letters, digits and . _ -")
	}
	if !o.NotBefore.IsZero() && !o.NotAfter.IsZero() && !o.NotBefore.Before(o.NotAfter) {
		return bad(errors.New("notBefore is not before notAfter"), "swap them")
	}
	public, err := parsePublic(publicPEM)
	if err != nil {
		return bad(err, "give the file that `cosign generate-key-pair` wrote as cosign.pub")
	}
	print, err := fingerprint(public)
	if err != nil {
		return bad(err, "")
	}
	return Key{
		id: id, public: public, fingerprint: print,
		notBefore: o.NotBefore.UTC(), notAfter: o.NotAfter.UTC(), revoked: o.Revoked,
	}, nil
}

func checkID(id string) error {
	switch {
	case id == "":
		return errors.New("it has no id")
	case len(id) > maxKeyID || strings.ContainsFunc(id, notInID):
		return errors.New("its id is not a name")
	}
	return nil
}

func notInID(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
}

// ID returns the key's id.
func (k Key) ID() string { return k.id }

// Fingerprint returns the hex SHA-256 of the public key's PKIX form.
func (k Key) Fingerprint() string { return k.fingerprint }

// PEM returns the public key as cosign.pub has it.
func (k Key) PEM() []byte {
	der, err := x509.MarshalPKIXPublicKey(k.public)
	if err != nil {
		return nil // not reached: NewKey has made the fingerprint from the same form
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func parsePublic(data []byte) (crypto.PublicKey, error) {
	if len(data) > maxKeyFile {
		return nil, fmt.Errorf("longer than %d bytes", maxKeyFile)
	}
	block, rest := pem.Decode(data)
	if block == nil {
		return nil, errors.New("there is no PEM block")
	}
	if strings.TrimSpace(string(rest)) != "" {
		return nil, errors.New("there is something after the first PEM block")
	}
	public, err := parsePublicBlock(block)
	if err != nil {
		return nil, err
	}
	return public, checkPublic(public)
}

func parsePublicBlock(block *pem.Block) (crypto.PublicKey, error) {
	switch {
	case block.Type == "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case block.Type == "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case strings.Contains(block.Type, "PRIVATE KEY"):
		return nil, errors.New("it is a private key: keep it where signing is done")
	case block.Type == "CERTIFICATE":
		return nil, errors.New("it is a certificate, not a public key")
	}
	return nil, fmt.Errorf("a PEM block of type %q is no public key", block.Type)
}

// checkPublic refuses kinds and sizes of keys that this package does not sign with.
func checkPublic(public crypto.PublicKey) error {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
			return nil
		}
		return fmt.Errorf("the curve %s is not supported: P-256, P-384 and P-521 are", k.Curve.Params().Name)
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < minRSABits || n > maxRSABits {
			return fmt.Errorf("an RSA key of %d bits is not supported: %d to %d are", n, minRSABits, maxRSABits)
		}
		return nil
	case ed25519.PublicKey:
		return nil
	}
	return fmt.Errorf("a key of kind %T is not supported: ECDSA, RSA and Ed25519 are", public)
}

func fingerprint(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

// signed reports whether signature is the key's over message.
func (k Key) signed(message, signature []byte) bool {
	switch public := k.public.(type) {
	case *ecdsa.PublicKey:
		for _, h := range hashesOf(public.Curve) {
			if ecdsa.VerifyASN1(public, sum(h, message), signature) {
				return true
			}
		}
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(public, crypto.SHA256, sum(crypto.SHA256, message), signature) == nil
	case ed25519.PublicKey:
		return ed25519.Verify(public, message, signature) ||
			ed25519.VerifyWithOptions(public, sum(crypto.SHA512, message), signature, &ed25519.Options{Hash: crypto.SHA512}) == nil
	}
	return false
}

// hashesOf returns the hashes that cosign uses with a curve: SHA-256 unless told
// otherwise when it verifies, the curve's own when it signs.
func hashesOf(curve elliptic.Curve) []crypto.Hash {
	switch curve {
	case elliptic.P384():
		return []crypto.Hash{crypto.SHA256, crypto.SHA384}
	case elliptic.P521():
		return []crypto.Hash{crypto.SHA256, crypto.SHA512}
	}
	return []crypto.Hash{crypto.SHA256}
}

func sum(h crypto.Hash, message []byte) []byte {
	switch h {
	case crypto.SHA384:
		s := sha512.Sum384(message)
		return s[:]
	case crypto.SHA512:
		s := sha512.Sum512(message)
		return s[:]
	}
	s := sha256.Sum256(message)
	return s[:]
}

// standing says why the key does not count at a time, or "".
func (k Key) standing(now time.Time) string {
	switch {
	case k.revoked:
		return "revoked"
	case !k.notBefore.IsZero() && now.Before(k.notBefore):
		return "not valid before " + k.notBefore.Format(time.RFC3339)
	case !k.notAfter.IsZero() && now.After(k.notAfter):
		return "expired " + k.notAfter.Format(time.RFC3339)
	}
	return ""
}
