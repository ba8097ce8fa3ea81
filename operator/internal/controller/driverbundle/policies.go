package driverbundle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// policies reads whose word counts.
func (r *Reconciler) policies(ctx context.Context, b *v1alpha1.DriverBundle) (policies, error) {
	var p policies
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

// defaultPolicy trusts each public key of the ConfigMap vdo-trust.
func (r *Reconciler) defaultPolicy(ctx context.Context, namespace string) (*trust.Policy, error) {
	subject := "ConfigMap " + namespace + "/" + v1alpha1.DefaultTrustName
	const create = "create it with the publisher's key: `kubectl create configmap " + v1alpha1.DefaultTrustName + " --from-file=cosign.pub`, or set spec.trust"
	bad := func(reason fault.Reason, err error) (*trust.Policy, error) {
		return nil, &fault.Error{Reason: reason, Op: "read trust policy from", Subject: subject, Hint: create, Err: err}
	}
	data, err := r.data(ctx, namespace, v1alpha1.KeyReference{ConfigMap: v1alpha1.DefaultTrustName})
	switch {
	case apierrors.IsNotFound(err):
		return bad(fault.NotFound, errors.New("it is not there, so nothing can be trusted"))
	case err != nil:
		return bad(fault.Unreachable, err)
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
		return bad(fault.InvalidInput, errors.New("it has no key ending in .pub, so nothing can be trusted"))
	}
	p, err := trust.NewPolicy(1, keys...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", subject, err)
	}
	return p, nil
}

// policy reads a policy of a spec. All problems are told together.
func (r *Reconciler) policy(ctx context.Context, namespace, field string, spec *v1alpha1.TrustPolicy) (*trust.Policy, error) {
	var keys []trust.Key
	var problems []error
	for _, k := range spec.Keys {
		key, err := r.key(ctx, namespace, k)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: key %s: %w", field, k.ID, err))
			continue
		}
		keys = append(keys, key)
	}
	var revoked []image.Digest
	for _, s := range spec.RevokedDigests {
		d, err := image.ParseDigest(s)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s.revokedDigests: %w", field, err))
			continue
		}
		revoked = append(revoked, d)
	}
	if len(problems) > 0 {
		return nil, fault.Join(problems...)
	}
	p, err := trust.NewPolicy(max(int(spec.Threshold), 1), keys...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return p.WithRevokedDigests(revoked...), nil
}

func (r *Reconciler) key(ctx context.Context, namespace string, k v1alpha1.TrustKey) (trust.Key, error) {
	o := trust.KeyOptions{Revoked: k.Revoked}
	if k.NotBefore != nil {
		o.NotBefore = k.NotBefore.Time
	}
	if k.NotAfter != nil {
		o.NotAfter = k.NotAfter.Time
	}
	if k.From == nil {
		return trust.NewKey(k.ID, []byte(k.PublicKey), o)
	}
	data, err := r.data(ctx, namespace, *k.From)
	name := k.From.Key
	if name == "" {
		name = v1alpha1.DefaultPublicKeyKey
	}
	f := &fault.Error{Reason: fault.NotFound, Op: "read", Subject: subjectOf(namespace, *k.From), Hint: "create it, or correct the key's from"}
	value, ok := data[name]
	switch {
	case apierrors.IsNotFound(err):
		f.Err = errors.New("it is not there")
		return trust.Key{}, f
	case err != nil:
		f.Reason, f.Err, f.Hint = fault.Unreachable, err, ""
		return trust.Key{}, f
	case !ok:
		f.Err = fmt.Errorf("it has no key %s", name)
		return trust.Key{}, f
	}
	return trust.NewKey(k.ID, value, o)
}

func subjectOf(namespace string, ref v1alpha1.KeyReference) string {
	if ref.Secret != "" {
		return "Secret " + namespace + "/" + ref.Secret
	}
	return "ConfigMap " + namespace + "/" + ref.ConfigMap
}

// data reads what a ConfigMap or Secret holds.
func (r *Reconciler) data(ctx context.Context, namespace string, ref v1alpha1.KeyReference) (map[string][]byte, error) {
	if ref.Secret != "" {
		var s corev1.Secret
		err := r.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Secret}, &s)
		return s.Data, err
	}
	var c corev1.ConfigMap
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.ConfigMap}, &c)
	data := map[string][]byte{}
	for k, v := range c.Data {
		data[k] = []byte(v)
	}
	for k, v := range c.BinaryData {
		data[k] = v
	}
	return data, err
}
