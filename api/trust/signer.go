package trust

import (
	"crypto"
	"crypto/ed25519"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // what older files derive their key with; nothing is hashed for trust
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"strings"
	"time"

	"github.com/sigstore/cosign/v2/pkg/cosign"
	cosignbundle "github.com/sigstore/cosign/v2/pkg/cosign/bundle"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/youmark/pkcs8"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const pkcs8Type = "ENCRYPTED PRIVATE KEY" // of the PEM block of an encrypted PKCS #8 key

// Signer holds a private key. [LoadSigner] creates it.
type Signer struct {
	key       Key
	private   crypto.Signer
	certified *certified // with a certificate for the key, or nil
	stamp     func(signature []byte) ([]byte, error)

	stampRoots TimestampRoots // of the time-stamping authority, or none
}

// String returns the key's public fingerprint, so that printing a Signer never prints the private key.
func (s *Signer) String() string { return "signer " + s.key.fingerprint }

// GoString is String.
func (s *Signer) GoString() string { return s.String() }

// LoadSigner reads a private key: cosign's encrypted PEM, PKCS #8 (plain, or encrypted with PBES2),
// SEC 1 (EC) or PKCS #1 (RSA). Messages name the file. It calls password for an encrypted key only,
// and returns its error unchanged.
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
	if block.Headers["DEK-Info"] != "" {
		return bad(fault.InvalidInput, "convert it with `openssl pkcs8 -topk8 -in "+name+" -out NEW.key`",
			errors.New("it is encrypted in an old form (Proc-Type: 4,ENCRYPTED), which is weak"))
	}
	var refused error // has its own reason and hint
	private, err := parsePrivate(block, func() (pass []byte, err error) {
		if err = errPassword; password != nil {
			pass, err = password()
			refused = err
		}
		return pass, err
	})
	switch {
	case refused != nil:
		return nil, fmt.Errorf("read private key %s: %w", name, refused)
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

// NewSigner returns a signer of a private key elsewhere, such as on a hardware token. name is for messages.
func NewSigner(name string, private crypto.Signer) (*Signer, error) {
	key, err := keyOf(name, private.Public())
	if err != nil {
		return nil, fault.Errorf(fault.InvalidInput, "use private key", name, "", "%w", err)
	}
	return &Signer{key: key, private: private}, nil
}

// privateBlock returns the first PEM block of a private key: openssl writes EC PARAMETERS before it.
func privateBlock(data []byte) *pem.Block {
	for {
		block, rest := pem.Decode(data)
		if block == nil || strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return block
		}
		data = rest
	}
}

var (
	errPassword = errors.New("the password does not open the key")
	errPBES2    = errors.New("it is damaged, or not encrypted with PBES2: write it again with `openssl pkcs8 -topk8 -v2 aes-256-cbc`")
)

// parsePrivate reads the key in a PEM block with sigstore's library, and asks for the password of an encrypted one.
func parsePrivate(block *pem.Block, password func() ([]byte, error)) (key crypto.Signer, err error) {
	unread := errors.New("the key inside cannot be read") // the cause could quote key material
	if block.Type == pkcs8Type {
		unread = errPBES2
	}
	defer func() {
		if recover() != nil {
			err = unread
		}
	}()
	var given []byte
	var refused error
	private, err := cryptoutils.UnmarshalPEMToPrivateKey(pem.EncodeToMemory(block), func(bool) ([]byte, error) {
		given, refused = password()
		return append([]byte{}, given...), refused // nil would mean not encrypted
	})
	says := func(text string) bool { return strings.Contains(err.Error(), text) } // the libraries have no error values
	switch {
	case err == nil:
	case refused != nil:
		return nil, refused
	case says("decryption failed"), block.Type == pkcs8Type && len(given) == 0:
		return nil, errPassword
	case says("incorrect password"):
		return nil, fmt.Errorf("%w, or the key inside cannot be read", errPassword)
	case says("scrypt"):
		return nil, err
	case says("unknown private key PEM file type"):
		return nil, fmt.Errorf("a PEM block of type %q is not supported", block.Type)
	default:
		return nil, unread
	}
	key, ok := private.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of kind %T does not sign", private)
	}
	return key, nil
}

// Policy returns the policy that the signer's own signature satisfies.
func (s *Signer) Policy() (*Policy, error) {
	key := s.key
	key.ID = "signer"
	return NewPolicy(1, key)
}

// sign signs a message so that cosign verify and verify-blob accept it without a chosen algorithm: SHA-256,
// or plain Ed25519. It uses the key itself, since sigstore's signers do not support keys on a token.
func (s *Signer) sign(message []byte) ([]byte, error) {
	hash := crypto.Hash(0)
	if _, ok := s.private.Public().(ed25519.PublicKey); !ok {
		sum := sha256.Sum256(message)
		message, hash = sum[:], crypto.SHA256
	}
	signature, err := s.private.Sign(rand.Reader, message, hash)
	if _, explained := errors.AsType[*fault.Error](err); err != nil && !explained {
		err = fault.Errorf(fault.Unreachable, "sign with", s.key.ID,
			"check that the token or service of the key is there, and that its login is valid and may sign", "%w", err)
	}
	return signature, err
}

// GenerateKey returns a key pair as cosign generate-key-pair does: ECDSA P-256, both in PEM, the
// private key encrypted with the password.
func GenerateKey(password []byte) (private, public []byte, err error) {
	keys, err := cosign.GenerateKeyPair(func(bool) ([]byte, error) { return password, nil })
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	return keys.PrivateBytes, keys.PublicBytes, nil
}

// WithCertificate returns the signer with a certificate for its key, which new signatures carry, as with
// cosign sign --certificate. The chain has the CAs up to the root, nearest first, with or without the root.
func (s *Signer) WithCertificate(name string, certificate, chain []byte, now time.Time) (*Signer, error) {
	bad := func(why error, hint string) (*Signer, error) {
		return nil, fault.Errorf(fault.InvalidInput, "use certificate", name, hint, "%w", why)
	}
	v, err := readCertified(certificate, chain, nil)
	switch {
	case err != nil:
		return bad(err, "give PEM: one certificate, and beside it the chain of those that issued it")
	case v == nil:
		return bad(errors.New("there is no certificate in it"), "give the certificate of the signing key, in PEM")
	}
	if print, err := fingerprint(v.leaf.PublicKey); err != nil || print != s.key.fingerprint {
		return bad(errors.New("it is for another key than the one that signs"), "give the certificate that was issued for this key")
	}
	hasUsage := len(v.leaf.ExtKeyUsage)+len(v.leaf.UnknownExtKeyUsage) > 0
	if !hasUsage || len(namesOf(v.leaf)) == 0 || !maySign(v.leaf) {
		return bad(errors.New("no policy can accept a CA's certificate, or one that is not for digital "+
			"signatures, or has no extended key usage, or no email, URI or DNS name"),
			"have one issued with the extended key usage codeSigning, and a subject alternative name")
	}
	at := v.leaf
	for _, c := range v.chain {
		if err := at.CheckSignatureFrom(c); err != nil {
			return bad(fmt.Errorf("%q did not issue %q", c.Subject, at.Subject), "give the chain with the issuer of the certificate first, then its issuer")
		}
		at = c
	}
	if from, to := v.leaf.NotBefore.UTC(), v.leaf.NotAfter.UTC(); now.Before(from) || now.After(to) {
		return bad(fmt.Errorf("it is valid from %s to %s, not now", from.Format(time.RFC3339), to.Format(time.RFC3339)),
			"check the clock of this machine, or have a new one issued")
	}
	out := *s
	out.certified = v
	return &out, nil
}

// WithTimestamps returns a signer whose new signatures carry time stamps (RFC 3161) from stamp, as
// with cosign sign --timestamp-server-url. It refuses stamps of other bytes, not by roots (if any),
// or outside the certificate's validity. It renews a signature without a valid stamp.
func (s *Signer) WithTimestamps(stamp func(signature []byte) ([]byte, error), roots TimestampRoots) *Signer {
	out := *s
	out.stamp, out.stampRoots = stamp, roots
	return &out
}

// certificates returns the annotations of a signature with the signer's certificate and chain.
func (s *Signer) certificates() map[string]string {
	out := map[string]string{}
	if s.certified != nil {
		out[CertificateAnnotation] = string(pemOf(s.certified.leaf))
		if len(s.certified.chain) > 0 {
			out[ChainAnnotation] = string(pemOf(s.certified.chain...))
		}
	}
	return out
}

// carried returns the annotations of a signature: certificate, chain, and its time stamp.
func (s *Signer) carried(signature []byte) (map[string]string, error) {
	out := s.certificates()
	stamp, err := s.stamped(signature)
	if err != nil || stamp == nil {
		return out, err
	}
	text, err := json.Marshal(cosignbundle.TimestampToRFC3161Timestamp(stamp))
	out[TimestampAnnotation] = string(text)
	return out, err
}

// stamped requests the time stamp of a signature; nil if the signer uses none.
func (s *Signer) stamped(signature []byte) ([]byte, error) {
	if s.stamp == nil {
		return nil, nil
	}
	stamp, err := s.stamp(signature)
	if err != nil {
		return nil, err
	}
	if err := s.checkStamp(stamp, signature); err != nil {
		return nil, fault.Errorf(fault.Corrupt, "check the time stamp of", "the signature",
			"have the time-stamping authority checked, its clock first, or give its roots with --timestamp-roots, "+
				"or use another one", "%w", err)
	}
	return stamp, nil
}

// checkStamp verifies the time stamp of a signature as far as the signer can.
func (s *Signer) checkStamp(stamp, signature []byte) error {
	says, err := CheckTimestamp(stamp, signature, s.stampRoots)
	if err != nil {
		return err
	}
	if v := s.certified; v != nil && (says.Time.Before(v.leaf.NotBefore) || says.Time.After(v.leaf.NotAfter)) {
		const late = "it gives the time %s, at which the certificate of the key is not valid"
		return fmt.Errorf(late, says.Time.UTC().Format(time.RFC3339))
	}
	return nil
}

// pbkdf2Parameters adds to sigstore's library the hashes SHA-384 and SHA-512, and keys that state their length.
// They follow RFC 8018, as `openssl pkcs8 -topk8` and `openssl genpkey -aes256` write them.
type pbkdf2Parameters struct {
	Salt       []byte
	Iterations int
	KeyLength  int                      `asn1:"optional"`
	PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
}

var prfs = map[string]func() hash.Hash{
	"":                    sha1.New, // the default of RFC 8018
	"1.2.840.113549.2.7":  sha1.New,
	"1.2.840.113549.2.9":  sha256.New,
	"1.2.840.113549.2.10": sha512.New384,
	"1.2.840.113549.2.11": sha512.New,
}

func init() {
	oid := asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}
	pkcs8.RegisterKDF(oid, func() pkcs8.KDFParameters { return &pbkdf2Parameters{} })
}

// DeriveKey returns the key of the cipher. More iterations would take longer than a few seconds.
func (p *pbkdf2Parameters) DeriveKey(password []byte, size int) ([]byte, error) {
	prf, ok := prfs[p.PRF.Algorithm.String()]
	if !ok || p.KeyLength != 0 && p.KeyLength != size || p.Iterations < 1 || p.Iterations > 10_000_000 {
		return nil, errPBES2
	}
	return pbkdf2.Key(prf, string(password), p.Salt, p.Iterations, size)
}
