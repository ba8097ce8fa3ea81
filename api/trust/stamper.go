package trust

import (
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/sigstore/sigstore-go/pkg/root"
)

// material is a trusted root whose time stamps are verified as those of private
// authorities are, whoever asks for them.
type material struct {
	root.TrustedMaterial
	authorities []root.TimestampingAuthority
}

// TimestampingAuthorities returns the trusted root's, each a [stamper].
func (m material) TimestampingAuthorities() []root.TimestampingAuthority { return m.authorities }

func stampedMaterial(trusted root.TrustedMaterial) root.TrustedMaterial {
	out := material{TrustedMaterial: trusted}
	for _, a := range trusted.TimestampingAuthorities() {
		// one without a root could not vouch for anything
		if s, ok := a.(*root.SigstoreTimestampingAuthority); ok && s.Root != nil {
			out.authorities = append(out.authorities, stamper{s})
		}
	}
	return out
}

// stamper is a time-stamping authority of a trusted root.
type stamper struct {
	authority *root.SigstoreTimestampingAuthority
}

// Verify verifies a time stamp over a signature, as [verifyTimestamp] does, and that the
// authority was trusted at its time.
func (s stamper) Verify(stamp, signature []byte) (*root.Timestamp, error) {
	a := s.authority
	if len(stamp) > MaxTimestamp {
		return nil, fmt.Errorf("it is longer than %d bytes", MaxTimestamp)
	}
	at, err := verifyTimestamp(stamp, signature, stampers{
		roots: []*x509.Certificate{a.Root}, between: a.Intermediates, signer: a.Leaf,
	})
	switch {
	case err != nil:
		return nil, err
	case !a.ValidityPeriodStart.IsZero() && at.Time.Before(a.ValidityPeriodStart):
		return nil, errors.New("it is of a time before that of its authority")
	case !a.ValidityPeriodEnd.IsZero() && at.Time.After(a.ValidityPeriodEnd):
		return nil, errors.New("it is of a time after that of its authority")
	}
	return &root.Timestamp{Time: at.Time, URI: a.URI}, nil
}
