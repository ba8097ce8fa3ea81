package driverbundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
)

// policies are the trust policies for a bundle.
type policies struct {
	floor  *trust.Policy // the operator's own; nil for none
	bundle *trust.Policy
	matrix *trust.Policy // nil: the bundle's signature suffices
}

// policies reads the policies of a DriverBundle.
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

// defaultPolicy returns the policy of ConfigMap vdo-trust: its policy.yaml or, if it has none, trust in each of its
// public keys.
func (r *Reconciler) defaultPolicy(ctx context.Context, namespace string) (*trust.Policy, error) {
	subject := "ConfigMap " + namespace + "/" + v1alpha1.DefaultTrustName
	create := "write it with the publisher's key: `kubectl -n " + namespace + " create configmap " + v1alpha1.DefaultTrustName +
		" --from-file=vdo.pub --dry-run=client -o yaml | kubectl apply -f -`; or set spec.trust"
	bad := func(reason fault.Reason, err error) (*trust.Policy, error) {
		return nil, &fault.Error{Reason: reason, Op: "read trust policy from", Subject: subject, Hint: create, Err: err}
	}
	read, err := source.Read(ctx, r.Reader, namespace, v1alpha1.KeyReference{ConfigMap: v1alpha1.DefaultTrustName})
	switch {
	case apierrors.IsNotFound(err):
		return bad(fault.NotFound, errors.New("it is not there, so nothing can be trusted"))
	case err != nil:
		return bad(fault.Unreachable, err)
	}
	if text, ok := read.Values[v1alpha1.DefaultTrustPolicyKey]; ok {
		return trust.ParsePolicy(subject+", key "+v1alpha1.DefaultTrustPolicyKey, text, filesOf(subject, read.Values))
	}
	var spec v1alpha1.TrustPolicy
	for _, name := range slices.Sorted(maps.Keys(read.Values)) {
		if id, isKey := strings.CutSuffix(name, ".pub"); isKey {
			spec.Keys = append(spec.Keys, v1alpha1.TrustKey{ID: id, PublicKey: string(read.Values[name])})
		}
	}
	if len(spec.Keys) == 0 {
		return bad(fault.InvalidInput, errors.New("it has neither "+v1alpha1.DefaultTrustPolicyKey+
			" nor a key ending in .pub, so nothing can be trusted"))
	}
	return r.policy(ctx, namespace, subject, &spec)
}

// filesOf returns a reader for the files that a policy names: other keys of its ConfigMap.
func filesOf(subject string, data map[string][]byte) func(string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		if value, ok := data[path]; ok {
			return value, nil
		}
		return nil, fault.Errorf(fault.NotFound, "read", subject,
			"put the file into the ConfigMap, under the name that the policy has for it", "it has no key %q", path)
	}
}

// references are the fields of a spec that refer to a key of a ConfigMap or Secret. Each has the field for the same
// text inline, and the default key.
var references = map[string]struct{ text, key string }{
	"from":               {"publicKey", v1alpha1.DefaultPublicKeyKey},
	"rootsFrom":          {"roots", v1alpha1.DefaultRootsKey},
	"intermediatesFrom":  {"intermediates", v1alpha1.DefaultRootsKey},
	"timestampRootsFrom": {"timestampRoots", v1alpha1.DefaultRootsKey},
	"trustedRootFrom":    {"trustedRoot", v1alpha1.DefaultTrustedRootKey},
}

// policy reads a policy of a spec. It resolves the references, and parses the result as a policy file. It reports
// all unresolved references together.
func (r *Reconciler) policy(
	ctx context.Context, namespace, field string, spec *v1alpha1.TrustPolicy,
) (*trust.Policy, error) {
	file, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	var problems []error
	for list, all := range file {
		entries, _ := all.([]any)
		for _, e := range entries {
			entry, _ := e.(map[string]any) // digests have no fields
			if err := r.resolve(ctx, namespace, entry); err != nil {
				problems = append(problems, fmt.Errorf("%s: %s of %s: %w", field, list, entry["id"], err))
			}
		}
	}
	if err := fault.Join(problems...); err != nil {
		return nil, err
	}
	file["apiVersion"], file["kind"] = trust.PolicyAPIVersion, trust.PolicyKind
	data, err := json.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return trust.ParsePolicy(field, data, nil)
}

// resolve replaces the references of an entry with their texts.
func (r *Reconciler) resolve(ctx context.Context, namespace string, entry map[string]any) error {
	var problems []error
	for name, is := range references {
		from, ok := entry[name].(map[string]any)
		if !ok {
			continue
		}
		delete(entry, name)
		var ref v1alpha1.KeyReference
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(from, &ref)
		if err == nil {
			var v source.Value
			v, err = source.Key(ctx, r.Reader, source.Desired{
				Namespace: namespace, Ref: ref, Default: is.key, Hint: "create it, or correct " + name,
			})
			entry[is.text] = string(v.Bytes)
		}
		problems = append(problems, err)
	}
	return fault.Join(problems...)
}

// verify checks a bundle's signatures against the operator's policy and the DriverBundle's, and returns the latter's
// result. It tries the times in order, until one succeeds.
func (p policies) verify(
	digest image.Digest, evidence []trust.Evidence, times []time.Time,
) (v trust.Verified, err error) {
	if p.floor != nil {
		err := atOneOf(times, func(t time.Time) error {
			_, err := p.floor.Verify(digest, evidence, t)
			return err
		})
		if err != nil {
			return v, fmt.Errorf("the operator's --trust-floor: %w", err)
		}
	}
	err = atOneOf(times, func(t time.Time) (err error) {
		v, err = p.bundle.Verify(digest, evidence, t)
		return err
	})
	return v, err
}

// verifyMatrix checks the matrix's own signature if a policy for it exists.
func (p policies) verifyMatrix(c *bundle.Contents, times []time.Time) error {
	if p.matrix == nil {
		return nil
	}
	err := atOneOf(times, func(t time.Time) error {
		_, err := p.matrix.VerifyBlob(c.Matrix, c.MatrixSignature, t)
		return err
	})
	if err != nil {
		return fmt.Errorf("the matrix inside: %w", err)
	}
	return nil
}

func atOneOf(times []time.Time, verify func(time.Time) error) (err error) {
	for _, t := range times {
		if err = verify(t); err == nil {
			return nil
		}
	}
	return err
}

// ReadFloor reads the operator's own policy and the files that it names, with paths relative to it. The id
// identifies all data read, not their location. Faults are fault.InvalidInput, except those of read.
func ReadFloor(name string, read func(path string) ([]byte, error)) (p *trust.Policy, id string, err error) {
	data, err := read(name)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	_, _ = sum.Write(data)
	p, err = trust.ParsePolicy(name, data, func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(name), path)
		}
		file, err := read(path)
		_, _ = sum.Write(file)
		return file, err
	})
	if err != nil {
		return nil, "", fault.Errorf(fault.InvalidInput, "read --trust-floor", "", fault.HintOf(err), "%w", err)
	}
	return p, hex.EncodeToString(sum.Sum(nil)), nil
}
