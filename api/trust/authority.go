package trust

import (
	"cmp"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Authority is a private certificate authority, and who counts of those that it
// has certified. It is made by [NewAuthority].
type Authority struct {
	entry
	o                      AuthorityOptions
	rootPool, intermediate *x509.CertPool
	extKeyUsage            x509.ExtKeyUsage
	usageOID               asn1.ObjectIdentifier // where extKeyUsage cannot say it
	timestampRoots         []*x509.Certificate   // and their intermediates
	revokedSerials         []*big.Int
}

// Text is bytes that a policy file has as text, such as PEM.
type Text []byte

// UnmarshalText takes the text as it is.
func (t *Text) UnmarshalText(data []byte) error { *t = slices.Clone(data); return nil }

// MarshalText returns the text as it is.
func (t Text) MarshalText() ([]byte, error) { return t, nil }

// AuthorityOptions say what of an authority counts. Texts hold one certificate in PEM or
// several.
type AuthorityOptions struct {
	Roots         Text `yaml:"roots,omitempty"`         // self-signed, at least one
	Intermediates Text `yaml:"intermediates,omitempty"` // used beside those that come with a signature
	// Identities are whose certificates count: at least one, since every leaf of the
	// authority would count without.
	Identities []Identity `yaml:"identities"`
	// ExtendedKeyUsage that a leaf must have: codeSigning (the default),
	// emailProtection, clientAuth, or an object identifier in dots.
	ExtendedKeyUsage string `yaml:"extendedKeyUsage,omitempty"`
	// TimestampRoots are authorities whose time stamps (RFC 3161) show that a
	// signature was made while its certificate was valid; with intermediates.
	TimestampRoots Text     `yaml:"timestampRoots,omitempty"`
	RevokedSerials []string `yaml:"revokedSerials,omitempty"` // of leaves and intermediates, in hex
	KeyOptions     `yaml:",inline"`
}

// NewAuthority checks a certificate authority. The id names it in messages.
func NewAuthority(id string, o AuthorityOptions) (Authority, error) {
	o.Identities = slices.Clone(o.Identities)
	a := Authority{entry: entry{id, o.KeyOptions}, o: o}
	if err := cmp.Or(checkID(id), a.read()); err != nil {
		return Authority{}, fault.Errorf(fault.InvalidInput, "read certificate authority", fmt.Sprintf("%q", id),
			wholePolicy+"; the fields: id, roots, intermediates, identities, extendedKeyUsage, timestampRoots", "%w", err)
	}
	return a, nil
}

func (a *Authority) read() error {
	o := a.o
	roots, err1 := parseCertificates("roots", o.Roots)
	intermediates, err2 := parseCertificates("intermediates", o.Intermediates)
	var err3, err4 error
	a.timestampRoots, err3 = parseCertificates("timestampRoots", o.TimestampRoots)
	a.revokedSerials, err4 = parseSerials(o.RevokedSerials)
	if err := errors.Join(err1, err2, err3, err4, a.valid.check()); err != nil {
		return err
	}
	if len(roots) == 0 {
		return errors.New("it has no roots: nothing could ever be accepted")
	}
	if err := checkIdentities(o.Identities, "every certificate of the authority would be accepted"); err != nil {
		return err
	}
	for _, c := range slices.Concat(roots, intermediates) {
		if !c.IsCA {
			return fmt.Errorf("the certificate of %q is not a certificate authority's", c.Subject)
		}
	}
	if len(a.timestampRoots) > 0 && !slices.ContainsFunc(a.timestampRoots, selfSigned) {
		return errors.New("timestampRoots: none of its certificates is self-signed")
	}
	a.rootPool, a.intermediate = pool(roots), pool(intermediates)
	return a.readUsage()
}

// usages are the extended key usages that have a name.
var usages = map[string]x509.ExtKeyUsage{
	"": x509.ExtKeyUsageCodeSigning, "codeSigning": x509.ExtKeyUsageCodeSigning,
	"emailProtection": x509.ExtKeyUsageEmailProtection, "clientAuth": x509.ExtKeyUsageClientAuth,
}

func (a *Authority) readUsage() error {
	if known, ok := usages[a.o.ExtendedKeyUsage]; ok {
		a.extKeyUsage = known
		return nil
	}
	for _, part := range strings.Split(a.o.ExtendedKeyUsage, ".") {
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return fmt.Errorf("the extended key usage %q is none of codeSigning, emailProtection, clientAuth, and no object identifier", a.o.ExtendedKeyUsage)
		}
		a.usageOID = append(a.usageOID, int(n)) //nolint:gosec // 31 bits
	}
	a.extKeyUsage = x509.ExtKeyUsageAny // the leaf's own list is looked at
	return nil
}

// refuses says why the authority does not vouch for who made a signature, or that this does
// not count at a time; "": it does. Time stamps are of stamped.
func (a Authority) refuses(v *certified, stamped []byte, now time.Time) string {
	chains, err := a.chains(v, now)
	if err != nil { // in time or not, is it one of this authority at all?
		chains, err = a.chains(v, v.leaf.NotBefore)
	}
	why := a.valid.invalid(now)
	switch {
	case err != nil:
		return fmt.Sprintf("of %s that the authority %s has not issued", identitiesOf(v.leaf), a.id)
	case why != "":
		return fmt.Sprintf("of the authority %s, %s", a.id, why)
	case !slices.ContainsFunc(a.o.Identities, func(i Identity) bool { return i.of(v.leaf) }):
		return fmt.Sprintf("of %s, who is none of the identities of %s", identitiesOf(v.leaf), a.id)
	case !a.mayBeUsed(v.leaf):
		return fmt.Sprintf("that the authority %s did not issue for %s", a.id, cmp.Or(a.o.ExtendedKeyUsage, "codeSigning"))
	}
	return a.late(v, stamped, chains, now)
}

// chains finds ways from the leaf to a root that hold at a time.
func (a Authority) chains(v *certified, at time.Time) ([][]*x509.Certificate, error) {
	between := a.intermediate.Clone()
	for _, c := range v.chain {
		between.AddCert(c)
	}
	return v.leaf.Verify(x509.VerifyOptions{
		Roots: a.rootPool, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{a.extKeyUsage},
	})
}

// late says why a signature was not made while its certificates were valid: that is now, or
// when a trusted time-stamping authority saw it. A way to a root counts at that time only,
// and so it is the ways of that time of which one must be without a revoked certificate.
// What is revoked is so for all times. anyTime are the ways by which the leaf is known to be
// of this authority.
func (a Authority) late(v *certified, stamped []byte, anyTime [][]*x509.Certificate, now time.Time) string {
	revoked := fmt.Sprintf("of the authority %s that the policy has revoked", a.id)
	if ways, err := a.chains(v, now); err == nil && !a.isRevoked(ways) {
		return ""
	} else if err == nil || a.leafRevoked(v.leaf) {
		return revoked
	}
	reason := "is issued by one that has expired"
	if now.Before(v.leaf.NotBefore) {
		reason = "is not valid before " + v.leaf.NotBefore.UTC().Format(time.RFC3339)
	} else if now.After(v.leaf.NotAfter) {
		reason = "expired " + v.leaf.NotAfter.UTC().Format(time.RFC3339)
	}
	what := fmt.Sprintf("of %s that %s, and ", identitiesOf(v.leaf), reason)
	switch {
	case len(a.timestampRoots) == 0:
		return what + a.id + " has no time-stamping authority"
	case len(v.timestamps) == 0:
		return what + "the signature has no time stamp"
	}
	for _, t := range v.timestamps {
		stamp, err := verifyTimestamp(t, stamped, stampersOf(a.timestampRoots))
		if err != nil || stamp.Time.After(now) {
			continue
		}
		ways, err := a.chains(v, stamp.Time)
		if err == nil && !a.isRevoked(ways) {
			return ""
		}
		if err == nil {
			anyTime = ways // the right time: this is why
		}
	}
	if a.isRevoked(anyTime) {
		return revoked
	}
	return what + "no time stamp by an authority of " + a.id + " says that it was made before"
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

// leafRevoked reports whether a certificate itself is revoked.
func (a Authority) leafRevoked(c *x509.Certificate) bool {
	return slices.ContainsFunc(a.revokedSerials, func(n *big.Int) bool { return n.Cmp(c.SerialNumber) == 0 })
}

// isRevoked reports whether every way to a root goes through a revoked certificate.
func (a Authority) isRevoked(chains [][]*x509.Certificate) bool {
	return !slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool {
		return !slices.ContainsFunc(chain, a.leafRevoked)
	})
}
