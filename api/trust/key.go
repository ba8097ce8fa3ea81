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
	"strings"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Key is a public key and the time in which its signatures are valid. [NewKey] creates it.
type Key struct {
	Entry     `yaml:",inline"`
	PublicKey Text   `yaml:"publicKey,omitempty"` // in PEM, as cosign.pub
	File      string `yaml:"file,omitempty"`

	public      crypto.PublicKey
	verifiers   []signature.Verifier
	fingerprint string // hex sha256 of the PKIX form: identifies distinct keys
}

const (
	maxKeyFile = 64 << 10
	minRSABits = 2048
	maxRSABits = 16384
)

// NewKey reads a public key in PEM (PKIX, as cosign.pub, or PKCS #1). Messages name it by the entry's id.
func NewKey(e Entry, publicPEM []byte) (Key, error) {
	k := Key{Entry: e, PublicKey: publicPEM}
	if err := readEntry(&k, nil); err != nil {
		return Key{}, err
	}
	return k, nil
}

func (k *Key) kind() kind {
	return kind{"public key", "", "give the .pub file that `vdo-bundle keygen` wrote, or `cosign generate-key-pair`"}
}

func (k *Key) files() []fileField {
	return []fileField{{"publicKey", "file", &k.PublicKey, &k.File}}
}

func (k *Key) identities() []string { return nil }

func (k *Key) prepare() error {
	public, err := parsePublic(k.PublicKey)
	if err != nil {
		return err
	}
	e := k.Entry
	*k, err = keyOf(e.ID, public)
	k.Entry = e
	return err
}

func keyOf(id string, public crypto.PublicKey) (k Key, err error) {
	if err := checkPublic(public); err != nil {
		const hint = "use an ECDSA key of P-256, P-384 or P-521, an RSA key of 2048 bits or more, or Ed25519"
		return k, fault.Errorf("", "", "", hint, "%w", err)
	}
	k = Key{Entry: Entry{ID: id}, public: public}
	if k.fingerprint, err = fingerprint(public); err != nil {
		return k, err
	}
	if k.PublicKey, err = cryptoutils.MarshalPublicKeyToPEM(public); err != nil {
		return k, err
	}
	k.verifiers, err = verifiersOf(public)
	return k, err
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
