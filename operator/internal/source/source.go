// Package source reads the Secrets and ConfigMaps that resources refer to, and identifies the state it read.
//
//	d, err := source.Read(ctx, reader, namespace, ref) // all keys, and the version
//	v, err := source.Key(ctx, reader, source.Desired{…}) // one key, and the version
//
// Nothing else in the operator reads them for a resource. Packages credentials and store make an account and a login
// of the content; they keep the version.
//
// A check (of a vCenter, a mirror, a signature) writes the version that it used into a status. Code that acts on the
// outcome compares it with the current version. So the operator never acts on content that changed after its check.
package source

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Data is the content of an object. It prints as "[redacted]".
type Data struct {
	redacted
	Values      map[string][]byte // by key; never nil if the object exists
	Annotations map[string]string // of a Secret
	// Version identifies the state read.
	Version string
}

// redacted keeps contents out of logs.
type redacted struct{}

func (redacted) String() string   { return "[redacted]" }
func (redacted) GoString() string { return "[redacted]" }

// Read reads all keys of the Secret or ConfigMap that a reference names. Errors are the API server's.
func Read(ctx context.Context, c client.Reader, namespace string, ref v1alpha1.KeyReference) (Data, error) {
	if ref.Secret != "" {
		var s corev1.Secret
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Secret}, &s); err != nil {
			return Data{}, err
		}
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		return Data{Values: s.Data, Annotations: s.Annotations, Version: versionOf(&s)}, nil
	}
	var m corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.ConfigMap}, &m); err != nil {
		return Data{}, err
	}
	values := make(map[string][]byte, len(m.Data)+len(m.BinaryData))
	for k, v := range m.BinaryData {
		values[k] = v
	}
	for k, v := range m.Data {
		values[k] = []byte(v)
	}
	return Data{Values: values, Version: versionOf(&m)}, nil
}

// Desired is one key that a resource refers to.
type Desired struct {
	Namespace string
	Ref       v1alpha1.KeyReference
	Default   string // the key if the reference names none
	Subject   string // of faults; default: the object, as [Subject] names it
	Hint      string // what to do if the object is missing or the value empty
}

// Value is the content of one key. It prints as "[redacted]".
type Value struct {
	redacted
	Bytes   []byte
	Version string // of the object
}

// Key reads one key. Errors are faults: NotFound, InvalidInput if the key has no value, Unreachable for any other
// answer of the API server.
func Key(ctx context.Context, c client.Reader, w Desired) (Value, error) {
	key := cmp.Or(w.Ref.Key, w.Default)
	f := &fault.Error{Reason: fault.NotFound, Op: "read", Subject: cmp.Or(w.Subject, Subject(w.Namespace, w.Ref)), Hint: w.Hint}
	d, err := Read(ctx, c, w.Namespace, w.Ref)
	value, ok := d.Values[key]
	switch {
	case apierrors.IsNotFound(err):
		f.Err = errors.New("it is not there")
	case err != nil:
		f.Reason, f.Err, f.Hint = fault.Unreachable, err, ""
	case !ok:
		f.Err = fmt.Errorf("it has no key %s", key)
	case len(bytes.TrimSpace(value)) == 0:
		f.Reason, f.Err = fault.InvalidInput, fmt.Errorf("its key %s is empty", key)
	default:
		return Value{Bytes: value, Version: d.Version}, nil
	}
	return Value{Version: d.Version}, f
}

// Subject returns "Secret NAMESPACE/NAME" or "ConfigMap NAMESPACE/NAME" for a reference.
func Subject(namespace string, ref v1alpha1.KeyReference) string {
	if ref.Secret != "" {
		return "Secret " + namespace + "/" + ref.Secret
	}
	return "ConfigMap " + namespace + "/" + ref.ConfigMap
}

// Mounted returns the ConfigMap or Secret key that a container mounts as a file; false if the file is of neither.
func Mounted(file string, pod *corev1.PodSpec, c *corev1.Container) (v1alpha1.KeyReference, bool) {
	var mount corev1.VolumeMount
	below := ""
	for _, m := range c.VolumeMounts {
		rest, inside := strings.CutPrefix(path.Clean(file), path.Clean(m.MountPath))
		if inside && (rest == "" || strings.HasPrefix(rest, "/")) && len(m.MountPath) > len(mount.MountPath) {
			mount, below = m, strings.TrimPrefix(path.Join(m.SubPath, rest), "/")
		}
	}
	ref, items := v1alpha1.KeyReference{}, []corev1.KeyToPath{}
	for _, v := range pod.Volumes {
		switch {
		case v.Name != mount.Name:
		case v.ConfigMap != nil:
			ref.ConfigMap, ref.Key, items = v.ConfigMap.Name, below, v.ConfigMap.Items
		case v.Secret != nil:
			ref.Secret, ref.Key, items = v.Secret.SecretName, below, v.Secret.Items
		}
	}
	if i := slices.IndexFunc(items, func(i corev1.KeyToPath) bool { return i.Path == below }); i >= 0 {
		ref.Key = items[i].Key
	}
	return ref, ref != v1alpha1.KeyReference{}
}

// versionOf returns an object's UID and resource version, which identify one state of it.
func versionOf(o client.Object) string {
	return string(o.GetUID()) + "/" + o.GetResourceVersion()
}

// PolicyVersion identifies the state of the ConfigMaps, Secrets and the operator's minimum trust policy that a
// DriverBundle's trust is read from, besides its spec. A missing object is a state too.
func PolicyVersion(ctx context.Context, c client.Reader, b *v1alpha1.DriverBundle, floor string) (string, error) {
	parts := []string{"floor " + floor}
	for _, ref := range b.TrustSources() {
		d, err := Read(ctx, c, b.Namespace, ref)
		switch {
		case apierrors.IsNotFound(err):
			d.Version = "none"
		case err != nil:
			return "", &fault.Error{Reason: fault.Unreachable, Op: "read the trust policy of", Subject: "DriverBundle " + b.Name, Err: err}
		}
		parts = append(parts, fmt.Sprintf("%s%s %s", ref.ConfigMap, ref.Secret, d.Version))
	}
	slices.Sort(parts)
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:16]), nil
}
