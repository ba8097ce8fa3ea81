package trust

import (
	"bytes"
	"cmp"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// CA is a private certificate authority, and the identities in its certificates whose signatures
// are valid. Texts hold one or several certificates in PEM.
type CA struct {
	Entry             `yaml:",inline"`
	Roots             Text   `yaml:"roots,omitempty"` // self-signed, at least one
	RootsFile         string `yaml:"rootsFile,omitempty"`
	Intermediates     Text   `yaml:"intermediates,omitempty"` // in addition to those that come with a signature
	IntermediatesFile string `yaml:"intermediatesFile,omitempty"`
	// Identities whose certificates are valid: at least one, since without any every leaf of the CA would be valid.
	Identities []Identity `yaml:"identities"`
	// ExtendedKeyUsage that a leaf must have: codeSigning, emailProtection, clientAuth, or an
	// object identifier in dots. Default: codeSigning.
	ExtendedKeyUsage string `yaml:"extendedKeyUsage,omitempty"`
	// TimestampRoots are time-stamping authorities, with intermediates. Their time stamps (RFC
	// 3161) prove that a signature was made while its certificate was valid.
	TimestampRoots Text     `yaml:"timestampRoots,omitempty"`
	TimestampFile  string   `yaml:"timestampRootsFile,omitempty"`
	RevokedSerials []string `yaml:"revokedSerials,omitempty"` // of any certificate of a chain, in hex

	rootPool, intermediate *x509.CertPool
	extKeyUsage            x509.ExtKeyUsage
	usageOID               *x509.OID // if extKeyUsage cannot express it
	stampers               TimestampRoots
	revokedSerials         []*big.Int
}

// Text is bytes that a policy file holds as text, such as PEM.
type Text []byte

// UnmarshalText copies the text unchanged.
func (t *Text) UnmarshalText(data []byte) error { *t = slices.Clone(data); return nil }

// MarshalText returns the text unchanged.
func (t Text) MarshalText() ([]byte, error) { return t, nil }

func (a *CA) kind() kind {
	return kind{"CA", "certificates of ",
		wholePolicy + "; the fields: id, roots, intermediates, identities, extendedKeyUsage, timestampRoots"}
}

func (a *CA) files() []fileField {
	return []fileField{
		{"roots", "rootsFile", &a.Roots, &a.RootsFile},
		{"intermediates", "intermediatesFile", &a.Intermediates, &a.IntermediatesFile},
		{"timestampRoots", "timestampRootsFile", &a.TimestampRoots, &a.TimestampFile},
	}
}

func (a *CA) identities() []string { return texts(a.Identities) }

func (a *CA) prepare() error {
	roots, err1 := parseCertificates("roots", a.Roots)
	intermediates, err2 := parseCertificates("intermediates", a.Intermediates)
	var err3, err4 error
	a.stampers, err3 = parseCertificates("timestampRoots", a.TimestampRoots)
	a.revokedSerials, err4 = parseSerials(a.RevokedSerials)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	if len(roots) == 0 {
		return errors.New("it has no roots: nothing could ever be accepted")
	}
	if err := checkIdentities(a.Identities, "every certificate of the CA would be accepted"); err != nil {
		return err
	}
	for _, c := range slices.Concat(roots, intermediates) {
		if !c.IsCA {
			return fmt.Errorf("the certificate of %q is not a CA's", c.Subject)
		}
	}
	if len(a.stampers) > 0 && !slices.ContainsFunc(a.stampers, selfSigned) {
		return errors.New("timestampRoots: none of its certificates is self-signed")
	}
	a.rootPool, a.intermediate = pool(roots), pool(intermediates)
	return a.readUsage()
}

// usages are the extended key usages with a name.
var usages = map[string]x509.ExtKeyUsage{
	"": x509.ExtKeyUsageCodeSigning, "codeSigning": x509.ExtKeyUsageCodeSigning,
	"emailProtection": x509.ExtKeyUsageEmailProtection, "clientAuth": x509.ExtKeyUsageClientAuth,
}

func (a *CA) readUsage() error {
	if known, ok := usages[a.ExtendedKeyUsage]; ok {
		a.extKeyUsage = known
		return nil
	}
	oid, err := x509.ParseOID(a.ExtendedKeyUsage)
	if err != nil {
		return fmt.Errorf("the extended key usage %q is none of codeSigning, emailProtection, clientAuth, and no object identifier", a.ExtendedKeyUsage)
	}
	for u := x509.ExtKeyUsageAny; u <= x509.ExtKeyUsageMicrosoftKernelCodeSigning; u++ {
		if u.OID().Equal(oid) {
			a.extKeyUsage = u
			return nil
		}
	}
	a.usageOID, a.extKeyUsage = &oid, x509.ExtKeyUsageAny // mayBeUsed checks the leaf's own list
	return nil
}

// signer returns the signer that the CA certifies, or why it does not, or why the signature is not
// valid at a time. The time stamps cover the bytes of stamped.
func (a CA) signer(v *certified, stamped []byte, now time.Time) (s CountedSigner, why string) {
	chains, err := a.chains(v, now)
	// Expired or not, did this CA issue it at all? An authority above it may be renewed meanwhile.
	for _, at := range []time.Time{v.leaf.NotBefore, v.leaf.NotAfter} {
		if err != nil {
			chains, err = a.chains(v, at)
		}
	}
	invalid := a.invalid(now)
	named := slices.IndexFunc(a.Identities, func(i Identity) bool { return i.of(v.leaf) })
	bad, _ := errors.AsType[x509.CertificateInvalidError](err)
	isOtherUse := err != nil && bad.Reason == x509.IncompatibleUsage
	switch {
	case err != nil && !isOtherUse:
		return s, fmt.Sprintf("of %s that the CA %s has not issued", identitiesOf(v.leaf), a.ID)
	case invalid != "":
		return s, fmt.Sprintf("of the CA %s, %s", a.ID, invalid)
	case named < 0:
		return s, fmt.Sprintf("of %s, who is none of the identities of %s", identitiesOf(v.leaf), a.ID)
	case isOtherUse || !a.mayBeUsed(v.leaf):
		usage := cmp.Or(a.ExtendedKeyUsage, "codeSigning")
		return s, fmt.Sprintf("that the CA %s did not issue for %s", a.ID, usage)
	}
	s.ID, s.Identity = a.ID, a.Identities[named].String()
	s.Stamped, why = a.late(v, stamped, chains, now)
	return s, why
}

// chains returns the certificate chains from the leaf to a root that are valid at a time.
func (a CA) chains(v *certified, at time.Time) ([][]*x509.Certificate, error) {
	between := a.intermediate.Clone()
	for _, c := range v.chain {
		between.AddCert(c)
	}
	return v.leaf.Verify(x509.VerifyOptions{
		Roots: a.rootPool, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{a.extKeyUsage},
	})
}

// late returns the time of a trusted time stamp, if any. It returns why a signature was not made while
// its certificates were valid: now, or at that time. One chain of that same time must be without a revoked
// certificate. Revocation applies to all times; anyTime are the chains that prove the issuer.
func (a CA) late(
	v *certified, stamped []byte, anyTime [][]*x509.Certificate, now time.Time,
) (at *time.Time, why string) {
	revoked := fmt.Sprintf("of the CA %s that the policy has revoked", a.ID)
	ways, invalid := a.chains(v, now)
	if invalid == nil && a.isRevoked(ways) || invalid != nil && a.leafRevoked(v.leaf) {
		return nil, revoked
	}
	for _, t := range v.timestamps {
		if len(a.stampers) == 0 {
			break // no roots would trust every time stamp
		}
		stamp, err := CheckTimestamp(t, stamped, a.stampers)
		if err != nil || stamp.Time.After(now) {
			continue
		}
		ways, err := a.chains(v, stamp.Time)
		if err == nil && !a.isRevoked(ways) {
			return &stamp.Time, ""
		}
		if err == nil {
			anyTime = ways // the chains of the correct time: their revocation is the reason
		}
	}
	if invalid == nil {
		return nil, ""
	}
	reason := "is issued by one that has expired"
	if now.Before(v.leaf.NotBefore) {
		reason = "is not valid before " + v.leaf.NotBefore.UTC().Format(time.RFC3339)
	} else if now.After(v.leaf.NotAfter) {
		reason = "expired " + v.leaf.NotAfter.UTC().Format(time.RFC3339)
	}
	what := fmt.Sprintf("of %s that %s, and ", identitiesOf(v.leaf), reason)
	switch {
	case now.Before(v.leaf.NotBefore): // no time stamp helps
		return nil, what + "the clock here says " + now.UTC().Format(time.RFC3339)
	case len(a.stampers) == 0:
		return nil, what + a.ID + " has no time-stamping authority"
	case len(v.timestamps) == 0:
		return nil, what + "the signature has no time stamp"
	case a.isRevoked(anyTime):
		return nil, revoked
	}
	return nil, what + "no time stamp by an authority of " + a.ID + " says that it was made before"
}

// mayBeUsed reports whether the leaf is an end certificate for signatures that itself lists the
// extended key usage. A missing list would allow every usage.
func (a CA) mayBeUsed(leaf *x509.Certificate) bool {
	listed := slices.Contains(leaf.ExtKeyUsage, a.extKeyUsage)
	if a.usageOID != nil {
		listed = slices.ContainsFunc(leaf.UnknownExtKeyUsage, a.usageOID.EqualASN1OID)
	}
	return listed && maySign(leaf)
}

// maySign reports whether a certificate is an end certificate for signatures.
func maySign(leaf *x509.Certificate) bool {
	return (leaf.KeyUsage == 0 || leaf.KeyUsage&x509.KeyUsageDigitalSignature != 0) && !leaf.IsCA
}

func (a CA) leafRevoked(c *x509.Certificate) bool {
	return slices.ContainsFunc(a.revokedSerials, func(n *big.Int) bool { return n.Cmp(c.SerialNumber) == 0 })
}

func (a CA) isRevoked(chains [][]*x509.Certificate) bool {
	return !slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool {
		return !slices.ContainsFunc(chain, a.leafRevoked)
	})
}

// Identity is one name in a certificate, compared character by character: one of the three.
type Identity struct {
	Email string `yaml:"email,omitempty"`
	URI   string `yaml:"uri,omitempty"`
	DNS   string `yaml:"dns,omitempty"`
}

// String returns the identity as "email release@corp.example".
func (i Identity) String() string {
	switch {
	case i.Email != "":
		return "email " + i.Email
	case i.URI != "":
		return "uri " + i.URI
	case i.DNS != "":
		return "dns " + i.DNS
	}
	return "no identity"
}

func (i Identity) check() error {
	given := 0
	for _, s := range []string{i.Email, i.URI, i.DNS} {
		if s != "" {
			given++
		}
		if err := exact(s); err != nil {
			return err
		}
	}
	if given != 1 {
		return errors.New("an identity is exactly one of email, uri and dns")
	}
	return nil
}

func exact(name string) error {
	if strings.TrimSpace(name) != name || strings.ContainsAny(name, "*\n") {
		return fmt.Errorf("%q is not an exact name: identities are compared character by character, without wildcards", name)
	}
	return nil
}

// checkIdentities requires at least one identity; without describes the effect of none.
func checkIdentities[T interface{ check() error }](all []T, without string) error {
	switch {
	case len(all) == 0:
		return errors.New("it has no identities: " + without)
	case len(all) > maxIdentities:
		return fmt.Errorf("%d identities are more than %d", len(all), maxIdentities)
	}
	for n, i := range all {
		if err := i.check(); err != nil {
			return fmt.Errorf("identities[%d]: %w", n, err)
		}
	}
	return nil
}

// of reports whether the identity is a subject alternative name of a certificate. The common name is not compared.
func (i Identity) of(c *x509.Certificate) bool {
	return slices.Contains(namesOf(c), i.String())
}

// namesOf returns the names in a certificate, in the form of [Identity.String].
func namesOf(c *x509.Certificate) (names []string) {
	for _, e := range c.EmailAddresses {
		names = append(names, "email "+e)
	}
	for _, u := range c.URIs {
		names = append(names, "uri "+u.String())
	}
	for _, d := range c.DNSNames {
		names = append(names, "dns "+d)
	}
	return names
}

// identitiesOf returns the names in a certificate, for messages.
func identitiesOf(c *x509.Certificate) string {
	names := namesOf(c)
	if len(names) == 0 {
		return "no identity (it has no subject alternative name)"
	}
	return fmt.Sprintf("%.300q", fault.Few(names, 3))
}

// Annotations of a claim's layer if the key has a certificate, as cosign writes them.
const (
	CertificateAnnotation = "dev.sigstore.cosign/certificate"
	ChainAnnotation       = "dev.sigstore.cosign/chain"
	TimestampAnnotation   = "dev.sigstore.cosign/rfc3161timestamp"
)

const (
	maxCertificates = 16       // of one chain, and of one PEM field of a policy
	maxChainPEM     = 64 << 10 // bytes
	maxCertificate  = 16 << 10 // bytes of one (DER)
	maxNames        = 256      // of one certificate, and of its other lists
	maxTimestamps   = 8        // of one signature
	maxIdentities   = 64       // of one CA
	maxSerials      = 1024     // of one CA

	// maxCertificateRSA bounds the bits of a certificate's RSA key, whoever issued it: the cost of a
	// verification grows with their square.
	maxCertificateRSA = 8192
)

func selfSigned(c *x509.Certificate) bool { return bytes.Equal(c.RawSubject, c.RawIssuer) }

func pool(certificates []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certificates {
		p.AddCert(c)
	}
	return p
}

// parseCertificates reads the certificates of a PEM text; an empty text has none.
func parseCertificates(what string, data []byte) ([]*x509.Certificate, error) {
	if len(data) > maxChainPEM {
		return nil, fmt.Errorf("%s: longer than %d bytes", what, maxChainPEM)
	}
	var out []*x509.Certificate
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil:
			return nil, fmt.Errorf("%s: there is something that is not a PEM block", what)
		case block.Type != "CERTIFICATE":
			return nil, fmt.Errorf("%s: a PEM block of type %.60q is not a certificate", what, block.Type)
		case len(out) == maxCertificates:
			return nil, fmt.Errorf("%s: there are more than %d certificates", what, maxCertificates)
		}
		c, err := parseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// parseCertificate reads one certificate (DER) and checks its bounds. A short one may need much
// memory, and a large key much time.
func parseCertificate(der []byte) (*x509.Certificate, error) {
	if len(der) > maxCertificate {
		return nil, fmt.Errorf("a certificate is longer than %d bytes", maxCertificate)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return c, boundCertificate(c)
}

func boundCertificate(c *x509.Certificate) error {
	if len(c.Raw) > maxCertificate {
		return fmt.Errorf("a certificate is longer than %d bytes", maxCertificate)
	}
	counts := map[string]int{
		"subject alternative names": len(c.DNSNames) + len(c.EmailAddresses) + len(c.IPAddresses) + len(c.URIs),
		"parts of its names":        len(c.Subject.Names) + len(c.Issuer.Names),
		"extensions":                len(c.Extensions),
		"extended key usages":       len(c.ExtKeyUsage) + len(c.UnknownExtKeyUsage),
		"policies":                  len(c.Policies) + len(c.PolicyIdentifiers),
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		if counts[what] > maxNames {
			return fmt.Errorf("a certificate has more than %d %s", maxNames, what)
		}
	}
	if k, ok := c.PublicKey.(*rsa.PublicKey); ok && k.N.BitLen() > maxCertificateRSA {
		return fmt.Errorf("a certificate has an RSA key of %d bits: more than %d are not supported", k.N.BitLen(), maxCertificateRSA)
	}
	return nil
}

func parseSerials(in []string) ([]*big.Int, error) {
	if len(in) > maxSerials {
		return nil, fmt.Errorf("%d revoked serials are more than %d", len(in), maxSerials)
	}
	out := make([]*big.Int, 0, len(in))
	for _, s := range in {
		n, ok := new(big.Int).SetString(strings.ReplaceAll(s, ":", ""), 16)
		if !ok || len(s) > 64 || n.Sign() < 0 {
			return nil, fmt.Errorf("revokedSerials: %.80q is not a serial number in hex", s)
		}
		out = append(out, n)
	}
	return out, nil
}

func pemOf(certificates ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range certificates {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return out
}

// certified is the certificate of a signature's key, with what comes with it.
type certified struct {
	leaf       *x509.Certificate
	chain      []*x509.Certificate // between the leaf and a root; not trusted
	timestamps [][]byte            // RFC 3161, over the signature
}

// readCertified reads the parts that cosign stores beside a signature; nil without a certificate.
func readCertified(leaf, chain []byte, timestamps [][]byte) (*certified, error) {
	if len(bytes.TrimSpace(leaf)) == 0 {
		return nil, nil
	}
	certificates, err := parseCertificates("its certificate", leaf)
	if err != nil {
		return nil, err
	}
	if len(certificates) != 1 {
		return nil, fmt.Errorf("its certificate: there are %d", len(certificates))
	}
	between, err := parseCertificates("its certificate chain", chain)
	if err != nil {
		return nil, err
	}
	return newCertified(certificates[0], between, timestamps)
}

func newCertified(leaf *x509.Certificate, chain []*x509.Certificate, timestamps [][]byte) (*certified, error) {
	if len(chain) > maxCertificates {
		return nil, fmt.Errorf("its certificate chain: there are more than %d certificates", maxCertificates)
	}
	if len(timestamps) > maxTimestamps {
		return nil, fmt.Errorf("there are more than %d time stamps", maxTimestamps)
	}
	return &certified{leaf, chain, timestamps}, nil
}
