package driverbundle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
)

// policies reads whose signatures count.
func (r *Reconciler) policies(ctx context.Context, b *v1alpha1.DriverBundle) (policies, error) {
	p := policies{floor: r.Floor}
	var bundleErr, matrixErr error
	if b.Spec.Trust != nil {
		p.bundle, bundleErr = r.policy(ctx, b.Namespace, "spec.trust", b.Spec.Trust)
	} else {
		p.bundle, bundleErr = r.defaultPolicy(ctx, b.Namespace)
	}
	if b.Spec.MatrixTrust != nil {
		p.matrix, matrixErr = r.policy(ctx, b.Namespace, "spec.matrixTrust", b.Spec.MatrixTrust)
	}
	return p, fault.Join(bundleErr, matrixErr)
}

// defaultPolicy is what the ConfigMap vdo-trust says: the policy in its policy.yaml,
// or where it has none, trust in each of its public keys.
func (r *Reconciler) defaultPolicy(ctx context.Context, namespace string) (*trust.Policy, error) {
	subject := "ConfigMap " + namespace + "/" + v1alpha1.DefaultTrustName
	const create = "create it with the publisher's key: `kubectl create configmap " + v1alpha1.DefaultTrustName + " --from-file=cosign.pub`, or set spec.trust"
	bad := func(reason fault.Reason, err error) (*trust.Policy, error) {
		return nil, &fault.Error{Reason: reason, Op: "read trust policy from", Subject: subject, Hint: create, Err: err}
	}
	read, err := source.Read(ctx, r.Reader, namespace, v1alpha1.KeyReference{ConfigMap: v1alpha1.DefaultTrustName})
	data := read.Values
	switch {
	case apierrors.IsNotFound(err):
		return bad(fault.NotFound, errors.New("it is not there, so nothing can be trusted"))
	case err != nil:
		return bad(fault.Unreachable, err)
	}
	if text, ok := data[v1alpha1.DefaultTrustPolicyKey]; ok {
		return trust.ParsePolicy(subject+", key "+v1alpha1.DefaultTrustPolicyKey, text, filesOf(subject, data))
	}
	var keys []trust.Key
	var problems []error
	for name, value := range data {
		id, isKey := strings.CutSuffix(name, ".pub")
		if !isKey {
			continue
		}
		k, err := trust.NewKey(id, value, trust.KeyOptions{})
		if err != nil {
			problems = append(problems, fmt.Errorf("%s, key %s: %w", subject, name, err))
			continue
		}
		keys = append(keys, k)
	}
	if len(problems) > 0 {
		return nil, fault.Join(problems...)
	}
	if len(keys) == 0 {
		return bad(fault.InvalidInput, errors.New("it has neither "+v1alpha1.DefaultTrustPolicyKey+" nor a key ending in .pub, so nothing can be trusted"))
	}
	p, err := trust.NewPolicy(1, keys...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", subject, err)
	}
	return p, nil
}

// filesOf gives a policy the files that it names: other keys of its ConfigMap.
func filesOf(subject string, data map[string][]byte) func(string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		if value, ok := data[path]; ok {
			return value, nil
		}
		return nil, &fault.Error{
			Reason: fault.NotFound, Op: "read", Subject: subject, Err: fmt.Errorf("it has no key %q", path),
			Hint: "put the file into the ConfigMap, under the name that the policy has for it",
		}
	}
}

// policy reads a policy of a spec. All problems are told together.
func (r *Reconciler) policy(ctx context.Context, namespace, field string, spec *v1alpha1.TrustPolicy) (*trust.Policy, error) {
	var problems []error
	bad := func(where string, err error) { problems = append(problems, fmt.Errorf("%s%s: %w", field, where, err)) }
	keys := make([]trust.Key, 0, len(spec.Keys))
	for _, k := range spec.Keys {
		key, err := r.key(ctx, namespace, k)
		if err != nil {
			bad(": key "+k.ID, err)
			continue
		}
		keys = append(keys, key)
	}
	authorities := make([]trust.Authority, 0, len(spec.Certificates))
	for _, c := range spec.Certificates {
		authority, err := r.authority(ctx, namespace, c)
		if err != nil {
			bad(": certificates of "+c.ID, err)
			continue
		}
		authorities = append(authorities, authority)
	}
	keyless := make([]trust.Keyless, 0, len(spec.Keyless))
	for _, k := range spec.Keyless {
		entry, err := r.keyless(ctx, namespace, k)
		if err != nil {
			bad(": keyless "+k.ID, err)
			continue
		}
		keyless = append(keyless, entry)
	}
	var revoked []image.Digest
	for _, s := range spec.RevokedDigests {
		d, err := image.ParseDigest(s)
		if err != nil {
			bad(".revokedDigests", err)
			continue
		}
		revoked = append(revoked, d)
	}
	if len(problems) > 0 {
		return nil, fault.Join(problems...)
	}
	p, err := trust.ComposePolicy(max(int(spec.Threshold), 1), keys, authorities, keyless...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return p.WithRevokedDigests(revoked...), nil
}

func (r *Reconciler) key(ctx context.Context, namespace string, k v1alpha1.TrustKey) (trust.Key, error) {
	data, err := r.text(ctx, namespace, k.PublicKey, k.From, v1alpha1.DefaultPublicKeyKey, "from")
	if err != nil {
		return trust.Key{}, err
	}
	return trust.NewKey(k.ID, data, trust.KeyOptions{Revoked: k.Revoked, NotBefore: timeOf(k.NotBefore), NotAfter: timeOf(k.NotAfter)})
}

// authority reads a certificate authority of a spec, and whose certificates count.
func (r *Reconciler) authority(ctx context.Context, namespace string, c v1alpha1.TrustAuthority) (trust.Authority, error) {
	o := trust.AuthorityOptions{
		ExtendedKeyUsage: c.ExtendedKeyUsage, RevokedSerials: c.RevokedSerials, Revoked: c.Revoked,
		NotBefore: timeOf(c.NotBefore), NotAfter: timeOf(c.NotAfter),
	}
	for _, i := range c.Identities {
		o.Identities = append(o.Identities, trust.Identity{Email: i.Email, URI: i.URI, DNS: i.DNS})
	}
	var errs [3]error
	o.Roots, errs[0] = r.text(ctx, namespace, c.Roots, c.RootsFrom, v1alpha1.DefaultRootsKey, "rootsFrom")
	o.Intermediates, errs[1] = r.text(ctx, namespace, c.Intermediates, c.IntermediatesFrom, v1alpha1.DefaultRootsKey, "intermediatesFrom")
	o.TimestampRoots, errs[2] = r.text(ctx, namespace, c.TimestampRoots, c.TimestampRootsFrom, v1alpha1.DefaultRootsKey, "timestampRootsFrom")
	if err := fault.Join(errs[:]...); err != nil {
		return trust.Authority{}, err
	}
	a, err := trust.NewAuthority(c.ID, o)
	if err != nil {
		return a, &fault.Error{Reason: fault.ReasonOf(err), Err: err, Hint: "correct it; `kubectl explain driverbundle.spec.trust.certificates` lists the fields"}
	}
	return a, nil
}

// keyless reads a sigstore of a spec, and whose certificates count. Its trusted root is
// what is written there or in the ConfigMap: nothing is fetched.
func (r *Reconciler) keyless(ctx context.Context, namespace string, k v1alpha1.TrustKeyless) (trust.Keyless, error) {
	o := trust.KeylessOptions{
		SigstoreOptions: trust.SigstoreOptions{WithoutTransparencyLog: k.WithoutTransparencyLog, WithoutCertificateLog: k.WithoutCertificateLog},
		Revoked:         k.Revoked, NotBefore: timeOf(k.NotBefore), NotAfter: timeOf(k.NotAfter),
	}
	for _, i := range k.Identities {
		o.Identities = append(o.Identities, trust.KeylessIdentity{Issuer: i.Issuer, Subject: i.Subject})
	}
	var err error
	if o.TrustedRoot, err = r.text(ctx, namespace, k.TrustedRoot, k.TrustedRootFrom, v1alpha1.DefaultTrustedRootKey, "trustedRootFrom"); err != nil {
		return trust.Keyless{}, err
	}
	entry, err := trust.NewKeyless(k.ID, o)
	if err != nil {
		return entry, &fault.Error{Reason: fault.ReasonOf(err), Err: err, Hint: "correct it; `kubectl explain driverbundle.spec.trust.keyless` lists the fields"}
	}
	return entry, nil
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// text returns what a spec has, or what a ConfigMap or Secret has that it
// names in a field.
func (r *Reconciler) text(ctx context.Context, namespace, inline string, from *v1alpha1.KeyReference, usual, field string) ([]byte, error) {
	if from == nil {
		return []byte(inline), nil
	}
	v, err := source.Key(ctx, r.Reader, source.Wanted{Namespace: namespace, Ref: *from, Default: usual, Hint: "create it, or correct " + field})
	return v.Bytes, err
}
