package trust

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sigstore/cosign/v2/pkg/cosign"
	cosignbundle "github.com/sigstore/cosign/v2/pkg/cosign/bundle"
	"github.com/sigstore/cosign/v2/pkg/oci/static"
	sigstorebundle "github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// LogAnnotation holds the transparency log entry, as cosign writes it.
const LogAnnotation = "dev.sigstore.cosign/bundle"

const (
	maxTrustedRoot = 1 << 20   // bytes
	maxLogEntry    = 256 << 10 // bytes
)

// KeylessIdentity is the subject of a short-lived certificate and the issuer of the login, both exact.
type KeylessIdentity struct {
	Issuer  string `yaml:"issuer"`  // of the login: https://accounts.google.com
	Subject string `yaml:"subject"` // an e-mail address or a URI
}

// String returns the identity as "release@corp.example by https://login.corp.example".
func (i KeylessIdentity) String() string { return i.Subject + " by " + i.Issuer }

func (i KeylessIdentity) check() error {
	for _, s := range []string{i.Issuer, i.Subject} {
		if s == "" {
			return errors.New("an identity has both issuer and subject")
		}
	}
	return errors.Join(exact(i.Issuer), exact(i.Subject))
}

// Keyless is a sigstore, and the identities in its short-lived certificates whose signatures are valid.
type Keyless struct {
	Entry `yaml:",inline"`
	// TrustedRoot is its trusted_root.json: CAs, logs and time-stamping authorities. It is never
	// fetched, so that expired parts stay expired.
	TrustedRoot     Text   `yaml:"trustedRoot,omitempty"`
	TrustedRootFile string `yaml:"trustedRootFile,omitempty"`
	// Identities whose certificates are valid: at least one, since without any every user with a
	// login would be valid.
	Identities []KeylessIdentity `yaml:"identities"`
	// WithoutTransparencyLog accepts a time stamp of the trusted root's authorities instead.
	WithoutTransparencyLog bool `yaml:"withoutTransparencyLog,omitempty"`
	// WithoutCertificateLog accepts certificates that are not in a certificate log.
	WithoutCertificateLog bool `yaml:"withoutCertificateLog,omitempty"`

	material root.TrustedMaterial
}

func (k *Keyless) kind() kind {
	return kind{"keyless", "keyless ", wholePolicy + "; the fields: id, trustedRoot, identities of issuer and subject"}
}

func (k *Keyless) files() []fileField {
	return []fileField{{"trustedRoot", "trustedRootFile", &k.TrustedRoot, &k.TrustedRootFile}}
}

func (k *Keyless) identities() []string { return texts(k.Identities) }

func (k *Keyless) prepare() (err error) {
	if err := checkIdentities(k.Identities, "everyone with a login would be accepted"); err != nil {
		return err
	}
	switch {
	case len(bytes.TrimSpace(k.TrustedRoot)) == 0:
		return errors.New("it has no trusted root: it is never fetched")
	case len(k.TrustedRoot) > maxTrustedRoot:
		return fmt.Errorf("its trusted root is longer than %d bytes", maxTrustedRoot)
	}
	k.material, err = parseTrustedRoot(k.TrustedRoot)
	return err
}

func parseTrustedRoot(data []byte) (material root.TrustedMaterial, err error) {
	defer recovered(&err)
	parsed, err := root.NewTrustedRootFromJSON(data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read trusted root: %w", err)
	case len(parsed.FulcioCertificateAuthorities()) == 0:
		return nil, errors.New("the trusted root has no CA: nothing could ever be accepted")
	}
	return parsed, nil
}

// signer returns the identity that signed a subject, or why the sigstore's trusted root does not accept the signature.
func (k Keyless) signer(e Evidence, subject image.Digest, now time.Time) (s CountedSigner, why string) {
	s, err := k.check(e, subject, now)
	if err != nil {
		return s, fmt.Sprintf("of %s that keyless %s does not accept (%.200s)", identitiesOf(e.holder.leaf), k.ID, err)
	}
	if why := k.invalid(now); why != "" {
		return s, "of keyless " + k.ID + ", " + why
	}
	s.ID = k.ID
	return s, ""
}

// check verifies a signature by the trusted root with cosign. Cosign would require either time
// stamps or the log; here one is enough. It would use its own clock with neither, and panic on
// invalid time stamps, so check verifies those first.
func (k Keyless) check(e Evidence, subject image.Digest, now time.Time) (s CountedSigner, err error) {
	s.Stamped, err = k.stamped(e, now)
	if err == nil {
		s.Identity, err = k.checkBy(e, subject, true)
	}
	if err == nil || k.WithoutTransparencyLog {
		return s, err
	}
	s.Stamped = nil
	s.Identity, err = k.checkBy(e, subject, false)
	return s, err
}

// stamped returns the past time at which an authority of the trusted root stamped the signature. It bounds all time
// stamps first, since cosign verifies every one.
func (k Keyless) stamped(e Evidence, now time.Time) (at *time.Time, err error) {
	defer recovered(&err)
	if len(e.holder.timestamps) == 0 {
		return nil, errors.New("it has no time stamp")
	}
	for _, stamp := range e.holder.timestamps {
		if _, err := parseTimestamp(stamp); err != nil {
			return nil, fmt.Errorf("its time stamp does not hold: %w", err)
		}
	}
	last := errors.New("the trusted root has no time-stamping authority")
	for _, stamp := range e.holder.timestamps {
		for _, a := range k.material.TimestampingAuthorities() {
			var found *root.Timestamp
			if found, last = a.Verify(stamp, e.stamped); last == nil && found.Time.After(now) {
				last = fmt.Errorf("it gives the time %s, which is to come", found.Time.UTC().Format(time.RFC3339))
			}
			if last == nil {
				return &found.Time, nil
			}
		}
	}
	return nil, fmt.Errorf("its time stamp does not hold: %w", last)
}

// checkBy tries the identities one by one, since cosign takes only one for a sigstore bundle. It
// tries only those in the certificate, since cosign may print its findings on others.
func (k Keyless) checkBy(e Evidence, subject image.Digest, timestamps bool) (identity string, err error) {
	err = errors.New("its certificate is of no identity that could be accepted")
	names := cryptoutils.GetSubjectAlternateNames(e.holder.leaf)
	for _, i := range k.Identities {
		if !slices.Contains(names, i.Subject) {
			continue
		}
		if err = e.check(subject, cosign.CheckOpts{
			TrustedMaterial: k.material, Identities: []cosign.Identity{{Issuer: i.Issuer, Subject: i.Subject}},
			IgnoreSCT: k.WithoutCertificateLog, IgnoreTlog: k.WithoutTransparencyLog, UseSignedTimestamps: timestamps,
		}); err == nil {
			return i.String(), nil
		}
	}
	return "", err
}

// check verifies the signature and its certificate with cosign, offline: it has no client of a log, so that missing
// parts stay missing.
func (e Evidence) check(subject image.Digest, o cosign.CheckOpts) (err error) {
	defer recovered(&err)
	o.Offline = true
	if e.bundle != nil {
		return e.checkBundle(subject, o)
	}
	along := []static.Option{
		static.WithCertChain(pemOf(e.holder.leaf), pemOf(e.holder.chain...)), static.WithBundle(e.log),
	}
	for _, stamp := range e.holder.timestamps {
		along = append(along, static.WithRFC3161Timestamp(cosignbundle.TimestampToRFC3161Timestamp(stamp)))
	}
	ctx, hash := context.Background(), v1.Hash{Algorithm: "sha256", Hex: subject.Hex()}
	if e.envelope != nil {
		sig, err := static.NewSignature(e.envelope, "", along...)
		if err == nil {
			o.ClaimVerifier = cosign.IntotoSubjectClaimVerifier
			_, err = cosign.VerifyBlobAttestation(ctx, sig, hash, &o)
		}
		return err
	}
	sig, err := static.NewSignature(e.message, base64.StdEncoding.EncodeToString(e.stamped), along...)
	if err == nil {
		o.ClaimVerifier = cosign.SimpleClaimVerifier // without it cosign ignores the digest
		_, err = cosign.VerifyImageSignature(ctx, sig, hash, &o)
	}
	return err
}

func (e Evidence) checkBundle(subject image.Digest, o cosign.CheckOpts) error {
	o.NewBundleFormat = true
	raw, err := hex.DecodeString(subject.Hex())
	if err != nil {
		return err
	}
	what := verify.WithArtifactDigest("sha256", raw)
	if e.bundle.GetDsseEnvelope() == nil { // of a file
		what = verify.WithArtifact(bytes.NewReader(e.message))
	}
	entity, err := sigstorebundle.NewBundle(e.bundle)
	if err == nil {
		_, err = cosign.VerifyNewBundle(context.Background(), &o, what, entity)
	}
	return err
}
