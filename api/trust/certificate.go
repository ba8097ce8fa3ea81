package trust

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Annotations of a claim's layer where a certificate vouches for the key, as cosign
// writes them.
const (
	CertificateAnnotation = "dev.sigstore.cosign/certificate"
	ChainAnnotation       = "dev.sigstore.cosign/chain"
	TimestampAnnotation   = "dev.sigstore.cosign/rfc3161timestamp"
)

const (
	maxCertificates = 16       // in one chain, and in one PEM field of a policy
	maxChainPEM     = 64 << 10 // bytes
	maxTimestamps   = 8        // of one signature
	maxIdentities   = 64       // of one authority
	maxSerials      = 1024     // of one authority
)

// Identity is one name that a certificate may have, in exactly these characters:
// one of the three.
type Identity struct {
	Email string `yaml:"email,omitempty"`
	URI   string `yaml:"uri,omitempty"`
	DNS   string `yaml:"dns,omitempty"`
}

// String writes the identity as "email release@corp.example".
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
		if strings.TrimSpace(s) != s || strings.ContainsAny(s, "*\n") {
			return fmt.Errorf("%q is no exact name: identities are compared character by character, without wildcards", s)
		}
	}
	if given != 1 {
		return errors.New("an identity is exactly one of email, uri and dns")
	}
	return nil
}

// of reports whether a certificate has the identity among its subject alternative
// names. Its common name does not count.
func (i Identity) of(c *x509.Certificate) bool {
	switch {
	case i.Email != "":
		return slices.Contains(c.EmailAddresses, i.Email)
	case i.URI != "":
		for _, u := range c.URIs {
			if u.String() == i.URI {
				return true
			}
		}
		return false
	}
	return i.DNS != "" && slices.Contains(c.DNSNames, i.DNS)
}

// identitiesOf lists what a certificate calls itself, for messages.
func identitiesOf(c *x509.Certificate) string {
	var names []string
	for _, e := range c.EmailAddresses {
		names = append(names, "email "+e)
	}
	for _, u := range c.URIs {
		names = append(names, "uri "+u.String())
	}
	for _, d := range c.DNSNames {
		names = append(names, "dns "+d)
	}
	switch {
	case len(names) == 0:
		return "nobody (it has no subject alternative name)"
	case len(names) > 3:
		names = append(names[:3], fmt.Sprintf("%d more", len(names)-3))
	}
	return fmt.Sprintf("%.300q", strings.Join(names, ", "))
}

// Authority is a private certificate authority, and who counts of those that it
// vouches for. It is made by [NewAuthority].
type Authority struct {
	id                     string
	roots, intermediates   []*x509.Certificate
	identities             []Identity
	usage                  string // as the policy writes it
	extKeyUsage            x509.ExtKeyUsage
	usageOID               asn1.ObjectIdentifier // where extKeyUsage cannot say it
	timestampRoots         []*x509.Certificate   // and their intermediates
	notBefore, notAfter    time.Time
	revoked                bool
	revokedSerials         []*big.Int
	rootPool, intermediate *x509.CertPool
}

// AuthorityOptions say what of an authority counts. PEM fields hold one certificate
// or several.
type AuthorityOptions struct {
	Roots         []byte // self-signed, at least one
	Intermediates []byte // used beside those that come with a signature
	// Identities are whose certificates count: at least one, since every leaf of the
	// authority would count without.
	Identities []Identity
	// ExtendedKeyUsage that a leaf must have: codeSigning (the default),
	// emailProtection, clientAuth, or an object identifier in dots.
	ExtendedKeyUsage string
	// TimestampRoots are authorities whose time stamps (RFC 3161) show that a
	// signature was made while its certificate was valid; with intermediates.
	TimestampRoots []byte
	RevokedSerials []string // of leaves and intermediates, in hex
	NotBefore      time.Time
	NotAfter       time.Time
	Revoked        bool
}

// NewAuthority checks a certificate authority. The id names it in messages.
func NewAuthority(id string, o AuthorityOptions) (Authority, error) {
	a := Authority{
		id: id, identities: slices.Clone(o.Identities), usage: o.ExtendedKeyUsage,
		notBefore: o.NotBefore.UTC(), notAfter: o.NotAfter.UTC(), revoked: o.Revoked,
	}
	err := checkID(id)
	if err == nil {
		err = a.read(o)
	}
	if err != nil {
		return Authority{}, &fault.Error{
			Reason: fault.InvalidInput, Op: "read certificate authority", Subject: fmt.Sprintf("%q", id), Err: err,
			Hint: "see the format in `go doc api/trust`: id, roots, intermediates, identities, extendedKeyUsage, timestampRoots",
		}
	}
	return a, nil
}

func (a *Authority) read(o AuthorityOptions) error {
	var errs [4]error
	a.roots, errs[0] = parseCertificates("roots", o.Roots)
	a.intermediates, errs[1] = parseCertificates("intermediates", o.Intermediates)
	a.timestampRoots, errs[2] = parseCertificates("timestampRoots", o.TimestampRoots)
	a.revokedSerials, errs[3] = parseSerials(o.RevokedSerials)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	switch {
	case len(a.roots) == 0:
		return errors.New("it has no roots: nothing could ever be accepted")
	case len(a.identities) == 0:
		return errors.New("it has no identities: every certificate of the authority would be accepted")
	case len(a.identities) > maxIdentities:
		return fmt.Errorf("%d identities are more than %d", len(a.identities), maxIdentities)
	case !a.notBefore.IsZero() && !a.notAfter.IsZero() && !a.notBefore.Before(a.notAfter):
		return errors.New("notBefore is not before notAfter")
	}
	for _, c := range append(slices.Clone(a.roots), a.intermediates...) {
		if !c.IsCA {
			return fmt.Errorf("the certificate of %q is no certificate authority's", c.Subject)
		}
	}
	if len(a.timestampRoots) > 0 && !slices.ContainsFunc(a.timestampRoots, selfSigned) {
		return errors.New("timestampRoots: none of its certificates is self-signed")
	}
	for n, i := range a.identities {
		if err := i.check(); err != nil {
			return fmt.Errorf("identities[%d]: %w", n, err)
		}
	}
	a.rootPool, a.intermediate = pool(a.roots), pool(a.intermediates)
	return a.readUsage()
}

// usages are the extended key usages that have a name.
var usages = map[string]x509.ExtKeyUsage{
	"": x509.ExtKeyUsageCodeSigning, "codeSigning": x509.ExtKeyUsageCodeSigning,
	"emailProtection": x509.ExtKeyUsageEmailProtection, "clientAuth": x509.ExtKeyUsageClientAuth,
}

func (a *Authority) readUsage() error {
	if known, ok := usages[a.usage]; ok {
		a.extKeyUsage = known
		return nil
	}
	for _, part := range strings.Split(a.usage, ".") {
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return fmt.Errorf("the extended key usage %q is none of codeSigning, emailProtection, clientAuth, and no object identifier", a.usage)
		}
		a.usageOID = append(a.usageOID, int(n)) //nolint:gosec // 31 bits
	}
	a.extKeyUsage = x509.ExtKeyUsageAny // the leaf's own list is looked at
	return nil
}

// ID returns the authority's id.
func (a Authority) ID() string { return a.id }

// Identities returns whose certificates count.
func (a Authority) Identities() []Identity { return slices.Clone(a.identities) }

func selfSigned(c *x509.Certificate) bool { return bytes.Equal(c.RawSubject, c.RawIssuer) }

func pool(certificates []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certificates {
		p.AddCert(c)
	}
	return p
}

// parseCertificates reads the certificates of a PEM text; nothing at all is none.
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
			return nil, fmt.Errorf("%s: there is something that is no PEM block", what)
		case block.Type != "CERTIFICATE":
			return nil, fmt.Errorf("%s: a PEM block of type %.60q is no certificate", what, block.Type)
		case len(out) == maxCertificates:
			return nil, fmt.Errorf("%s: there are more than %d certificates", what, maxCertificates)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		out = append(out, c)
	}
	return out, nil
}

func parseSerials(in []string) ([]*big.Int, error) {
	if len(in) > maxSerials {
		return nil, fmt.Errorf("%d revoked serials are more than %d", len(in), maxSerials)
	}
	out := make([]*big.Int, 0, len(in))
	for _, s := range in {
		n, ok := new(big.Int).SetString(strings.ReplaceAll(s, ":", ""), 16)
		if !ok || len(s) > 64 || n.Sign() < 0 {
			return nil, fmt.Errorf("revokedSerials: %.80q is no serial number in hex", s)
		}
		out = append(out, n)
	}
	return out, nil
}

func pemOf(certificates []*x509.Certificate) []byte {
	var out []byte
	for _, c := range certificates {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return out
}

// voucher is what comes with a signature where a certificate vouches for its key.
type voucher struct {
	leaf       *x509.Certificate
	chain      []*x509.Certificate // between the leaf and a root; nothing in it is trusted
	timestamps [][]byte            // RFC 3161, over the signature
}

// readVoucher reads what cosign puts beside a signature; nil where there is none.
func readVoucher(leaf, chain []byte, timestamps [][]byte) (*voucher, error) {
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
	return newVoucher(certificates[0], between, timestamps)
}

func newVoucher(leaf *x509.Certificate, chain []*x509.Certificate, timestamps [][]byte) (*voucher, error) {
	if len(chain) > maxCertificates {
		return nil, fmt.Errorf("its certificate chain: there are more than %d certificates", maxCertificates)
	}
	if len(timestamps) > maxTimestamps {
		return nil, fmt.Errorf("there are more than %d time stamps", maxTimestamps)
	}
	for _, t := range timestamps {
		if len(t) > MaxTimestamp {
			return nil, fmt.Errorf("a time stamp is longer than %d bytes", MaxTimestamp)
		}
	}
	return &voucher{leaf, chain, timestamps}, nil
}

// signed reports whether the voucher's leaf made the signature, and the fingerprint
// of its key.
func (v *voucher) signed(message, signature []byte) (print string, ok bool) {
	if checkPublic(v.leaf.PublicKey) != nil {
		return "", false
	}
	print, err := fingerprint(v.leaf.PublicKey)
	k := Key{public: v.leaf.PublicKey}
	return print, err == nil && k.signed(message, signature)
}

// refusal says why a voucher does not count for an authority. One that is about the
// authority's own certificates is worth more to who reads it than that of others.
type refusal struct {
	why   string
	known bool // the authority has issued the certificate
}

func (r *refusal) Error() string { return r.why }

// unknown and refuses make refusals.
func unknown(format string, args ...any) *refusal { return &refusal{why: fmt.Sprintf(format, args...)} }

func (a Authority) refuses(format string, args ...any) *refusal {
	return &refusal{why: fmt.Sprintf(format, args...), known: true}
}

// vouches checks that the authority vouches for who made a signature, at a time; nil:
// it does. Time stamps are of stamped.
func (a Authority) vouches(v *voucher, stamped []byte, now time.Time) *refusal {
	chains, err := a.chains(v, now)
	if err != nil { // in time or not, is it one of this authority at all?
		chains, err = a.chains(v, v.leaf.NotBefore)
	}
	if err != nil {
		return unknown("by a certificate of %s that the authority %s does not vouch for", identitiesOf(v.leaf), a.id)
	}
	switch why := a.standing(now); {
	case why != "":
		return a.refuses("by a certificate of the authority %s, %s", a.id, why)
	case !slices.ContainsFunc(a.identities, func(i Identity) bool { return i.of(v.leaf) }):
		return a.refuses("by a certificate of %s, who is none of the identities of %s", identitiesOf(v.leaf), a.id)
	case !a.mayBeUsed(v.leaf):
		return a.refuses("by a certificate that the authority %s did not issue for %s", a.id, a.usageName())
	}
	return a.inTime(v, stamped, chains, now)
}

// chains finds ways from the leaf to a root that hold at a time.
func (a Authority) chains(v *voucher, at time.Time) ([][]*x509.Certificate, error) {
	between := a.intermediate.Clone()
	for _, c := range v.chain {
		between.AddCert(c)
	}
	return v.leaf.Verify(x509.VerifyOptions{
		Roots: a.rootPool, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{a.extKeyUsage},
	})
}

// inTime checks that the signature was made while its certificates were valid: that
// is now, or when a trusted time-stamping authority saw it. A way to a root counts at
// that time only, and so it is the ways of that time of which one must be without a
// revoked certificate. What is revoked is so for all times. anyTime are the ways by
// which the leaf is known to be of this authority.
func (a Authority) inTime(v *voucher, stamped []byte, anyTime [][]*x509.Certificate, now time.Time) *refusal {
	revoked := a.refuses("by a certificate of the authority %s that the policy has revoked", a.id)
	if ways, err := a.chains(v, now); err == nil && !a.isRevoked(ways) {
		return nil
	} else if err == nil || a.leafRevoked(v.leaf) {
		return revoked
	}
	lapse := "is not valid before " + v.leaf.NotBefore.UTC().Format(time.RFC3339)
	if now.After(v.leaf.NotBefore) {
		lapse = "expired " + v.leaf.NotAfter.UTC().Format(time.RFC3339)
	}
	if !now.After(v.leaf.NotAfter) && now.After(v.leaf.NotBefore) {
		lapse = "is issued by one that has expired"
	}
	what := fmt.Sprintf("by a certificate of %s that %s", identitiesOf(v.leaf), lapse)
	switch {
	case len(a.timestampRoots) == 0:
		return a.refuses("%s, and %s has no time-stamping authority", what, a.id)
	case len(v.timestamps) == 0:
		return a.refuses("%s, and the signature has no time stamp", what)
	}
	for _, t := range v.timestamps {
		at, err := a.timeOf(t, stamped)
		if err != nil || at.After(now) {
			continue
		}
		ways, err := a.chains(v, at)
		if err == nil && !a.isRevoked(ways) {
			return nil
		}
		if err == nil {
			anyTime = ways // the right time: this is why
		}
	}
	if a.isRevoked(anyTime) {
		return revoked
	}
	return a.refuses("%s, and no time stamp by an authority of %s says that it was made before", what, a.id)
}

// timeOf verifies a time stamp over a signature.
func (a Authority) timeOf(stamp, signature []byte) (time.Time, error) {
	if len(a.timestampRoots) == 0 {
		return time.Time{}, errors.New("there is no time-stamping authority to trust")
	}
	return stampTime(stamp, signature, a.timestampRoots)
}

// mayBeUsed demands that the leaf is an end's, for signatures, and itself lists the
// extended key usage: a list that is absent would allow all.
func (a Authority) mayBeUsed(leaf *x509.Certificate) bool {
	listed := slices.Contains(leaf.ExtKeyUsage, a.extKeyUsage)
	if a.usageOID != nil {
		listed = slices.ContainsFunc(leaf.UnknownExtKeyUsage, a.usageOID.Equal)
	}
	signs := leaf.KeyUsage == 0 || leaf.KeyUsage&x509.KeyUsageDigitalSignature != 0
	return listed && signs && !leaf.IsCA
}

func (a Authority) usageName() string {
	if a.usage == "" {
		return "codeSigning"
	}
	return a.usage
}

// leafRevoked reports whether a certificate itself is revoked.
func (a Authority) leafRevoked(c *x509.Certificate) bool {
	return slices.ContainsFunc(a.revokedSerials, func(n *big.Int) bool { return n.Cmp(c.SerialNumber) == 0 })
}

// isRevoked reports whether every way to a root goes through a revoked certificate.
func (a Authority) isRevoked(chains [][]*x509.Certificate) bool {
	for _, chain := range chains {
		if !slices.ContainsFunc(chain, a.leafRevoked) {
			return false
		}
	}
	return true
}

// standing says why the authority does not count at a time, or "".
func (a Authority) standing(now time.Time) string {
	return Key{revoked: a.revoked, notBefore: a.notBefore, notAfter: a.notAfter}.standing(now)
}
