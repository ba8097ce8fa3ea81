package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// entry is the common part of all policy entries.
type entry struct {
	id    string     // names the entry in messages
	valid KeyOptions // when it is valid
}

// Key is a public key and the time in which its signatures are valid. [NewKey] creates it.
type Key struct {
	entry
	public      crypto.PublicKey
	verifiers   []signature.Verifier
	fingerprint string // hex sha256 of the PKIX form: identifies distinct keys
}

// KeyOptions limit the validity of a key. The zero value sets no limit.
type KeyOptions struct {
	NotBefore time.Time `yaml:"notBefore,omitempty"`
	NotAfter  time.Time `yaml:"notAfter,omitempty"`
	Revoked   bool      `yaml:"revoked,omitempty"`
}

const (
	maxKeyFile = 64 << 10
	minRSABits = 2048
	maxRSABits = 16384
)

// NewKey reads a public key in PEM (PKIX, as cosign.pub, or PKCS #1). Messages name it by id.
func NewKey(id string, publicPEM []byte, o KeyOptions) (Key, error) {
	bad := func(why error, hint string) (Key, error) {
		return Key{}, fault.Errorf(fault.InvalidInput, "read public key", fmt.Sprintf("%q", id), hint, "%w", why)
	}
	if err := checkID(id); err != nil {
		return bad(err, "give each key an id of 1 to 63 letters, digits and . _ -")
	}
	if err := o.check(); err != nil {
		return bad(err, "swap them")
	}
	public, err := parsePublic(publicPEM)
	if err != nil {
		return bad(err, "give the .pub file that `vdo-bundle keygen` wrote, or `cosign generate-key-pair`")
	}
	k, err := keyOf(id, public)
	if err != nil {
		return bad(err, "")
	}
	k.valid = o
	return k, nil
}

func keyOf(id string, public crypto.PublicKey) (Key, error) {
	if err := checkPublic(public); err != nil {
		return Key{}, err
	}
	print, err := fingerprint(public)
	if err != nil {
		return Key{}, err
	}
	verifiers, err := verifiersOf(public)
	return Key{entry: entry{id: id}, public: public, verifiers: verifiers, fingerprint: print}, err
}

func checkID(id string) error {
	switch {
	case id == "":
		return errors.New("it has no id")
	case !idText.MatchString(id):
		return errors.New("its id is not a name")
	}
	return nil
}

var idText = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)

// PEM returns the public key in the form of cosign.pub.
func (k Key) PEM() []byte {
	out, err := cryptoutils.MarshalPublicKeyToPEM(k.public)
	if err != nil {
		return nil // not reached: NewKey made the fingerprint from the same form
	}
	return out
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
	switch {
	case strings.Contains(block.Type, "PRIVATE KEY"):
		return nil, errors.New("it is a private key: keep it where signing is done")
	case block.Type == "CERTIFICATE":
		return nil, errors.New("it is a certificate, not a public key")
	}
	return cryptoutils.UnmarshalPEMToPublicKey(data)
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
	der, err := cryptoutils.MarshalPublicKeyToDER(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

// check refuses an empty time range, and converts the times to UTC.
func (o *KeyOptions) check() error {
	if !o.NotBefore.IsZero() && !o.NotAfter.IsZero() && !o.NotBefore.Before(o.NotAfter) {
		return errors.New("notBefore is not before notAfter")
	}
	o.NotBefore, o.NotAfter = o.NotBefore.UTC(), o.NotAfter.UTC()
	return nil
}

// invalid returns why a policy entry is not valid at a time, or "".
func (o KeyOptions) invalid(now time.Time) string {
	switch {
	case o.Revoked:
		return "revoked"
	case !o.NotBefore.IsZero() && now.Before(o.NotBefore):
		return "not valid before " + o.NotBefore.Format(time.RFC3339)
	case !o.NotAfter.IsZero() && now.After(o.NotAfter):
		return "expired " + o.NotAfter.Format(time.RFC3339)
	}
	return ""
}
