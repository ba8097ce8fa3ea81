package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// PEM types of encrypted private keys, as cosign writes them.
const (
	sigstorePrivateKey = "ENCRYPTED SIGSTORE PRIVATE KEY"
	cosignPrivateKey   = "ENCRYPTED COSIGN PRIVATE KEY"
	pkcs8PrivateKey    = "ENCRYPTED PRIVATE KEY"
)

// DefaultIdentity is what a signed claim calls its subject when the signer does not
// say; what counts is the digest.
const DefaultIdentity = "vdo.vmware.com/bundle"

// Signer holds a private key. It is made by [LoadSigner].
type Signer struct {
	key     Key
	private crypto.Signer
	vouched *voucher // a certificate for the key, or nil
	stamp   func(signature []byte) ([]byte, error)
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
		return nil, &fault.Error{Reason: reason, Op: "read private key", Subject: name, Hint: hint, Err: why}
	}
	const formats = "give a key that `vdo-bundle keygen` or `cosign generate-key-pair` made, or PEM of PKCS #8, EC or RSA"
	if len(privatePEM) > maxKeyFile {
		return bad(fault.InvalidInput, formats, fmt.Errorf("longer than %d bytes", maxKeyFile))
	}
	block := privateBlock(privatePEM)
	if block == nil {
		return bad(fault.InvalidInput, formats, errors.New("there is no PEM block of a private key"))
	}
	der, err := decrypt(block, password)
	var asked askError
	switch {
	case errors.As(err, &asked):
		return nil, fmt.Errorf("read private key %s: %w", name, asked.error)
	case errors.Is(err, errPassword):
		return bad(fault.Unauthorized, "give the password that the key was made with", err)
	case err != nil:
		return bad(fault.InvalidInput, formats, err)
	}
	private, err := parsePrivate(block.Type, der)
	if err != nil {
		return bad(fault.InvalidInput, formats, err)
	}
	return NewSigner(name, private)
}

// NewSigner makes a signer of a private key that somebody else holds, such as a
// hardware token. name is for messages.
func NewSigner(name string, private crypto.Signer) (*Signer, error) {
	bad := func(why error) (*Signer, error) {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "use private key", Subject: name, Err: why,
			Hint: "use an ECDSA key of P-256, P-384 or P-521, an RSA key of 2048 bits or more, or Ed25519",
		}
	}
	if err := checkPublic(private.Public()); err != nil {
		return bad(err)
	}
	print, err := fingerprint(private.Public())
	if err != nil {
		return bad(err)
	}
	return &Signer{key: Key{id: name, public: private.Public(), fingerprint: print}, private: private}, nil
}

// WithCertificate returns the signer with a certificate for its key, which its
// signatures carry from now on, as those of cosign sign --certificate do. chain are
// the authorities between the certificate and the root, with or without the root,
// nearest first.
func (s *Signer) WithCertificate(name string, certificate, chain []byte, now time.Time) (*Signer, error) {
	bad := func(why error, hint string) (*Signer, error) {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "use certificate", Subject: name, Hint: hint, Err: why}
	}
	v, err := readVoucher(certificate, chain, nil)
	switch {
	case err != nil:
		return bad(err, "give PEM: one certificate, and beside it the chain of those that issued it")
	case v == nil:
		return bad(errors.New("there is no certificate in it"), "give the certificate of the signing key, in PEM")
	}
	if print, err := fingerprint(v.leaf.PublicKey); err != nil || print != s.key.fingerprint {
		return bad(errors.New("it is for another key than the one that signs"), "give the certificate that was issued for this key")
	}
	at := v.leaf
	for _, c := range v.chain {
		if err := at.CheckSignatureFrom(c); err != nil {
			return bad(fmt.Errorf("%q did not issue %q", c.Subject, at.Subject), "give the chain with the issuer of the certificate first, then its issuer")
		}
		at = c
	}
	switch {
	case now.After(v.leaf.NotAfter):
		return bad(fmt.Errorf("it expired %s", v.leaf.NotAfter.UTC().Format(time.RFC3339)), "have a new one issued")
	case now.Before(v.leaf.NotBefore):
		return bad(fmt.Errorf("it is not valid before %s", v.leaf.NotBefore.UTC().Format(time.RFC3339)), "check the clock of this machine")
	}
	out := *s
	out.vouched = v
	return &out, nil
}

// WithTimestamps returns the signer with a time-stamping authority: stamp is shown
// each signature that is made from now on, and returns the authority's answer (RFC
// 3161), which the signature then carries, as those of cosign sign
// --timestamp-server-url do. An answer that is not a time stamp of the signature, or
// says that it was made while the signer's certificate was not valid, is refused.
func (s *Signer) WithTimestamps(stamp func(signature []byte) ([]byte, error)) *Signer {
	out := *s
	out.stamp = stamp
	return &out
}

// stampAnnotation is the form in which cosign keeps a time stamp.
type stampAnnotation struct {
	Stamp []byte `json:"SignedRFC3161Timestamp"`
}

// carried returns the annotations that go with a signature: certificate, chain, and
// the time stamp of it.
func (s *Signer) carried(signature []byte) (map[string]string, error) {
	out := map[string]string{}
	if s.vouched != nil {
		out[CertificateAnnotation] = string(pemOf([]*x509.Certificate{s.vouched.leaf}))
		if len(s.vouched.chain) > 0 {
			out[ChainAnnotation] = string(pemOf(s.vouched.chain))
		}
	}
	if s.stamp == nil {
		return out, nil
	}
	stamp, err := s.stamped(signature)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(stampAnnotation{stamp})
	out[TimestampAnnotation] = string(text)
	return out, err
}

// stamped asks for the time stamp of a signature.
func (s *Signer) stamped(signature []byte) ([]byte, error) {
	stamp, err := s.stamp(signature)
	if err != nil {
		return nil, err
	}
	at, err := CheckTimestamp(stamp, signature, TimestampRoots{})
	if v := s.vouched; err == nil && v != nil && (at.Before(v.leaf.NotBefore) || at.After(v.leaf.NotAfter)) {
		err = fmt.Errorf("it gives the time %s, at which the certificate of the key is not valid", at.UTC().Format(time.RFC3339))
	}
	if err != nil {
		return nil, &fault.Error{
			Reason: fault.Corrupt, Op: "check the time stamp of", Subject: "the signature", Err: err,
			Hint: "have the time-stamping authority looked at, its clock first, or use another one",
		}
	}
	return stamp, nil
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

// decrypt returns the DER of a private key block.
func decrypt(block *pem.Block, password func() ([]byte, error)) ([]byte, error) {
	open := openSealed
	switch {
	case block.Headers["DEK-Info"] != "":
		return nil, errors.New("it is encrypted in openssl's old form: write it as PKCS #8 with `openssl pkcs8 -topk8 -v2 aes-256-cbc`")
	case block.Type == pkcs8PrivateKey:
		sealed, err := parsePBES2(block.Bytes)
		if err != nil {
			return nil, err
		}
		open = func(_, password []byte) ([]byte, error) { return sealed.open(password) }
	case block.Type != sigstorePrivateKey && block.Type != cosignPrivateKey:
		return block.Bytes, nil
	case !json.Valid(block.Bytes):
		return nil, errors.New("the encrypted key is damaged")
	}
	if password == nil {
		return nil, errPassword
	}
	pass, err := password()
	if err != nil {
		return nil, askError{err}
	}
	return open(block.Bytes, pass)
}

// askError is why there is no password: it has reason and hint of its own.
type askError struct{ error }

// openSealed opens cosign's form: scrypt and secretbox, in JSON.
func openSealed(data, password []byte) ([]byte, error) {
	der, err := encrypted.Decrypt(data, password)
	if err != nil && strings.Contains(err.Error(), "decryption failed") {
		return nil, errPassword // the library has no error value for it
	}
	return der, err
}

func parsePrivate(kind string, der []byte) (crypto.Signer, error) {
	var private any
	var err error
	switch kind {
	case "EC PRIVATE KEY":
		private, err = x509.ParseECPrivateKey(der)
	case "RSA PRIVATE KEY":
		private, err = x509.ParsePKCS1PrivateKey(der)
	case "PRIVATE KEY", pkcs8PrivateKey, sigstorePrivateKey, cosignPrivateKey:
		private, err = x509.ParsePKCS8PrivateKey(der)
	default:
		return nil, fmt.Errorf("a PEM block of type %q is not supported", kind)
	}
	if err != nil {
		return nil, errors.New("the key inside cannot be read") // why could quote key material
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of kind %T does not sign", private)
	}
	return signer, checkPublic(signer.Public())
}

// Key returns the public key, under an id.
func (s *Signer) Key(id string, o KeyOptions) (Key, error) { return NewKey(id, s.key.PEM(), o) }

// PublicPEM returns the public key as cosign.pub has it.
func (s *Signer) PublicPEM() []byte { return s.key.PEM() }

// sign signs a message so that cosign verify and verify-blob accept it without
// being told an algorithm: SHA-256, or plain Ed25519.
func (s *Signer) sign(message []byte) ([]byte, error) {
	if _, ok := s.private.Public().(ed25519.PublicKey); ok {
		return s.private.Sign(rand.Reader, message, crypto.Hash(0))
	}
	return s.private.Sign(rand.Reader, sum(crypto.SHA256, message), crypto.SHA256)
}

// Signed is a signature manifest as cosign writes it.
type Signed struct {
	Manifest   []byte
	Descriptor ocispec.Descriptor // of Manifest
	Tag        string             // to put it under: sha256-HEX.sig
	// Blobs are the config and the claims that this signing made; the claims of
	// signatures that were there before are where they were.
	Blobs []Blob
}

// Blob is a blob with its bytes.
type Blob struct {
	Descriptor ocispec.Descriptor
	Data       []byte
}

// Sign signs a digest. identity is what the signer calls it, HOST/PATH or
// HOST/PATH:TAG ("" for [DefaultIdentity]). existing is the manifest that is under
// the tag already, or nil: its signatures are kept, and nothing is added where the
// key has signed the same claim before.
func (s *Signer) Sign(subject image.Digest, identity string, existing []byte) (Signed, error) {
	if subject.IsZero() {
		return Signed{}, &fault.Error{Reason: fault.InvalidInput, Op: "sign", Err: errors.New("there is no digest to sign")}
	}
	if identity == "" {
		identity = DefaultIdentity
	}
	if _, err := image.ParseReference(identity); err != nil {
		return Signed{}, err
	}
	m, err := existingManifest(existing, SimpleSigningMediaType)
	if err != nil {
		return Signed{}, &fault.Error{
			Reason: fault.Conflict, Op: "add a signature to", Subject: SignatureTag(subject), Err: err,
			Hint: "remove what is under this tag",
		}
	}
	claim, err := claimOf(subject, identity)
	if err != nil {
		return Signed{}, err
	}
	switch added, err := s.addSignature(&m, claim); {
	case err != nil:
		return Signed{}, err
	case !added:
		return Signed{
			Manifest: existing, Descriptor: describe(ocispec.MediaTypeImageManifest, existing), Tag: SignatureTag(subject),
		}, nil
	}
	return seal(m, SignatureTag(subject), Blob{Descriptor: describe(SimpleSigningMediaType, claim), Data: claim})
}

// claimOf returns the bytes that are signed: those of cosign sign.
func claimOf(subject image.Digest, identity string) ([]byte, error) {
	var c simpleClaim
	c.Critical.Identity.Reference = identity
	c.Critical.Image.Digest = subject.String()
	c.Critical.Type = claimType
	return json.Marshal(c)
}

// addSignature adds a layer for the claim unless the key's signature is there.
func (s *Signer) addSignature(m *ocispec.Manifest, claim []byte) (added bool, err error) {
	layer := describe(SimpleSigningMediaType, claim)
	if slices.ContainsFunc(m.Layers, func(l ocispec.Descriptor) bool {
		raw, err := decodeSignature(l.Annotations[SignatureAnnotation])
		return l.Digest == layer.Digest && err == nil && s.key.signed(claim, raw) &&
			(s.vouched == nil || l.Annotations[CertificateAnnotation] == string(pemOf([]*x509.Certificate{s.vouched.leaf}))) &&
			(s.stamp == nil || l.Annotations[TimestampAnnotation] != "")
	}) {
		return false, nil
	}
	if len(m.Layers) >= maxSignatures {
		return false, &fault.Error{
			Reason: fault.Refused, Op: "sign", Err: fmt.Errorf("there are %d signatures already", len(m.Layers)),
			Hint: "remove signatures that are out of use",
		}
	}
	raw, err := s.sign(claim)
	if err != nil {
		return false, fmt.Errorf("sign: %w", err)
	}
	carried, err := s.carried(raw)
	if err != nil {
		return false, err
	}
	layer.Annotations = map[string]string{SignatureAnnotation: base64.StdEncoding.EncodeToString(raw)}
	maps.Copy(layer.Annotations, carried)
	m.Layers = append(m.Layers, layer)
	return true, nil
}

// existingManifest returns the manifest to add to: empty, or what data holds, whose
// layers are all of one type.
func existingManifest(data []byte, mediaType string) (ocispec.Manifest, error) {
	empty := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	if data == nil {
		return empty, nil
	}
	if len(data) > maxManifest {
		return empty, fmt.Errorf("its manifest is longer than %d bytes", maxManifest)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return empty, fmt.Errorf("it is no image manifest: %w", err)
	}
	for _, l := range m.Layers {
		if l.MediaType != mediaType {
			return empty, fmt.Errorf("it has a layer of type %q, which is not %s", l.MediaType, mediaType)
		}
	}
	m.SchemaVersion, m.MediaType = 2, ocispec.MediaTypeImageManifest
	return m, nil
}

// seal makes the config that cosign makes, and the manifest's bytes.
func seal(m ocispec.Manifest, tag string, added Blob) (Signed, error) {
	config, err := configOf(m.Layers)
	if err != nil {
		return Signed{}, err
	}
	m.Config = describe(ocispec.MediaTypeImageConfig, config)
	data, err := json.Marshal(m)
	if err != nil {
		return Signed{}, err
	}
	return Signed{
		Manifest:   data,
		Descriptor: describe(ocispec.MediaTypeImageManifest, data),
		Tag:        tag,
		Blobs:      []Blob{{Descriptor: m.Config, Data: config}, added},
	}, nil
}

// configOf returns an image config without anything in it but the layers: time zero,
// no platform, as cosign writes it, so that signing is the same everywhere.
func configOf(layers []ocispec.Descriptor) ([]byte, error) {
	const never = "0001-01-01T00:00:00Z"
	type history struct {
		Created string `json:"created"`
	}
	type rootfs struct {
		Type    string          `json:"type"`
		DiffIDs []digest.Digest `json:"diff_ids"`
	}
	c := struct {
		Architecture string    `json:"architecture"`
		Created      string    `json:"created"`
		History      []history `json:"history"`
		OS           string    `json:"os"`
		RootFS       rootfs    `json:"rootfs"`
		Config       struct{}  `json:"config"`
	}{Created: never, RootFS: rootfs{Type: "layers"}}
	for _, l := range layers {
		c.History = append(c.History, history{Created: never})
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, l.Digest)
	}
	return json.Marshal(c)
}

func describe(mediaType string, data []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

// GenerateKey makes a key pair as cosign generate-key-pair does: ECDSA P-256, the
// private key encrypted with the password, both in PEM.
func GenerateKey(password []byte) (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	sealed, err := encrypted.Encrypt(der, password)
	if err != nil {
		return nil, nil, fmt.Errorf("encrypt private key: %w", err)
	}
	pub, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: sigstorePrivateKey, Bytes: sealed}),
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}), nil
}
