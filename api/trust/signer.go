package trust

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/sigstore/cosign/v2/pkg/cosign"
	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const pkcs8PrivateKey = "ENCRYPTED PRIVATE KEY" // the PEM type of PKCS #8 that is encrypted

// Signer holds a private key. It is made by [LoadSigner].
type Signer struct {
	key       Key
	private   crypto.Signer
	certified *certified // by a certificate for the key, or nil
	stamp     func(signature []byte) ([]byte, error)

	stampRoots TimestampRoots // of the time-stamping authority, or none
}

// String names the key by its public fingerprint, so that printing a Signer never
// prints the private key.
func (s *Signer) String() string { return "signer " + s.key.fingerprint }

// GoString is String.
func (s *Signer) GoString() string { return s.String() }

// LoadSigner reads a private key: cosign's encrypted PEM, PKCS #8 (plain, or
// encrypted with PBES2), SEC 1 (EC) or PKCS #1 (RSA). name is the file's, for
// messages. password is asked only where the key is encrypted; its error is handed
// on as it is.
func LoadSigner(name string, privatePEM []byte, password func() ([]byte, error)) (*Signer, error) {
	bad := func(reason fault.Reason, hint string, why error) (*Signer, error) {
		return nil, fault.Errorf(reason, "read private key", name, hint, "%w", why)
	}
	const formats = "give a key that `vdo-bundle keygen` or `cosign generate-key-pair` made, or PEM of PKCS #8, EC or RSA"
	if len(privatePEM) > maxKeyFile {
		return bad(fault.InvalidInput, formats, fmt.Errorf("longer than %d bytes", maxKeyFile))
	}
	block := privateBlock(privatePEM)
	if block == nil {
		return bad(fault.InvalidInput, formats, errors.New("there is no PEM block of a private key"))
	}
	private, err := parsePrivate(block, password)
	var asked askError
	switch {
	case errors.As(err, &asked):
		return nil, fmt.Errorf("read private key %s: %w", name, asked.error)
	case errors.Is(err, errPassword):
		return bad(fault.Unauthorized, "give the password that the key was made with", err)
	case err != nil:
		return bad(fault.InvalidInput, formats, err)
	}
	if err := checkPublic(private.Public()); err != nil {
		return bad(fault.InvalidInput, formats, err)
	}
	return NewSigner(name, private)
}

// NewSigner makes a signer of a private key that somebody else holds, such as a
// hardware token. name is for messages.
func NewSigner(name string, private crypto.Signer) (*Signer, error) {
	key, err := keyOf(name, private.Public())
	if err != nil {
		return nil, fault.Errorf(fault.InvalidInput, "use private key", name,
			"use an ECDSA key of P-256, P-384 or P-521, an RSA key of 2048 bits or more, or Ed25519", "%w", err)
	}
	return &Signer{key: key, private: private}, nil
}

// privateBlock returns the first PEM block that can hold a private key: openssl
// writes EC PARAMETERS before it.
func privateBlock(data []byte) *pem.Block {
	for {
		block, rest := pem.Decode(data)
		if block == nil || strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return block
		}
		data = rest
	}
}

var errPassword = errors.New("the password does not open the key")

// parsePrivate reads the key in a PEM block with sigstore's library, which does not know
// PKCS #8 that is encrypted.
func parsePrivate(block *pem.Block, password func() ([]byte, error)) (crypto.Signer, error) {
	if block.Headers["DEK-Info"] != "" {
		return nil, errors.New("it is encrypted in openssl's old form: write it as PKCS #8 with `openssl pkcs8 -topk8 -v2 aes-256-cbc`")
	}
	var open func(password []byte) ([]byte, error)
	if block.Type == pkcs8PrivateKey {
		var err error
		if open, err = parsePBES2(block.Bytes); err != nil {
			return nil, err
		}
	}
	pass, err := ask(block, password)
	if err != nil {
		return nil, err
	}
	if open != nil {
		der, err := open(pass)
		if err != nil {
			return nil, err
		}
		block = &pem.Block{Type: string(cryptoutils.PrivateKeyPEMType), Bytes: der}
	}
	private, err := cryptoutils.UnmarshalPEMToPrivateKey(pem.EncodeToMemory(block), func(bool) ([]byte, error) { return pass, nil })
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "decryption failed"): // the library has no error value for it
		return nil, errPassword
	case strings.Contains(err.Error(), "scrypt"):
		return nil, err
	case strings.Contains(err.Error(), "unknown private key PEM file type"):
		return nil, fmt.Errorf("a PEM block of type %q is not supported", block.Type)
	default:
		return nil, errors.New("the key inside cannot be read") // why could quote key material
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of kind %T does not sign", private)
	}
	return signer, nil
}

// ask asks for the password of a key, if it is encrypted. One that is damaged is not
// asked for.
func ask(block *pem.Block, password func() ([]byte, error)) ([]byte, error) {
	switch block.Type {
	case pkcs8PrivateKey:
	case cosign.SigstorePrivateKeyPemType, cosign.CosignPrivateKeyPemType:
		if !json.Valid(block.Bytes) {
			return nil, errors.New("the encrypted key is damaged")
		}
	default:
		return nil, nil
	}
	if password == nil {
		return nil, errPassword
	}
	pass, err := password()
	if err != nil {
		return nil, askError{err}
	}
	return append([]byte{}, pass...), nil // nil would be: not encrypted
}

// askError is why there is no password: it has reason and hint of its own.
type askError struct{ error }

// Key returns the public key, under an id.
func (s *Signer) Key(id string, o KeyOptions) (Key, error) { return NewKey(id, s.key.PEM(), o) }

// PublicPEM returns the public key as cosign.pub has it.
func (s *Signer) PublicPEM() []byte { return s.key.PEM() }

// sign signs a message so that cosign verify and verify-blob accept it without
// being told an algorithm: SHA-256, or plain Ed25519. The key is asked itself, since
// sigstore's signers take no key that a token holds.
func (s *Signer) sign(message []byte) ([]byte, error) {
	if _, ok := s.private.Public().(ed25519.PublicKey); ok {
		return s.private.Sign(rand.Reader, message, crypto.Hash(0))
	}
	hash := sha256.Sum256(message)
	return s.private.Sign(rand.Reader, hash[:], crypto.SHA256)
}

// GenerateKey makes a key pair as cosign generate-key-pair does: ECDSA P-256, the
// private key encrypted with the password, both in PEM.
func GenerateKey(password []byte) (private, public []byte, err error) {
	keys, err := cosign.GenerateKeyPair(func(bool) ([]byte, error) { return password, nil })
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	return keys.PrivateBytes, keys.PublicBytes, nil
}
