package vspherecloudconfig

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// fallback is the namespace where the Secret is looked for second, as the earlier
// operator asked for it there.
const fallback = metav1.NamespaceSystem

// inputs are what a resource refers to.
type inputs struct {
	request Request
	version string // identifies the objects read, whatever is in them
}

// observe reads the Secret and the CA. The version is good also beside an error,
// so that the same broken Secret is not reported as news.
func observe(ctx context.Context, c client.Reader, vcc *v1alpha1.VsphereCloudConfig) (inputs, error) {
	in := inputs{request: Request{Spec: vcc.Spec}}
	secret, errSecret := credentials(ctx, c, vcc)
	if secret != nil {
		in.version = versionOf(secret)
		in.request.Username = value(secret, corev1.BasicAuthUsernameKey)
		in.request.Password = Password(value(secret, corev1.BasicAuthPasswordKey))
	}
	if vcc.Spec.CA == nil {
		return in, errSecret
	}
	ca, version, errCA := authority(ctx, c, vcc.Namespace, vcc.Spec.CA)
	in.request.CA = ca
	in.version += " " + version
	return in, fault.Join(errSecret, errCA)
}

// credentials reads the Secret from the resource's namespace, else from kube-system.
func credentials(ctx context.Context, c client.Reader, vcc *v1alpha1.VsphereCloudConfig) (*corev1.Secret, error) {
	var s corev1.Secret
	for _, ns := range []string{vcc.Namespace, fallback} {
		err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: vcc.Spec.Credentials}, &s)
		if err == nil {
			return &s, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, &fault.Error{Reason: fault.Internal, Op: "read Secret", Subject: ns + "/" + vcc.Spec.Credentials, Err: err}
		}
	}
	return nil, &fault.Error{
		Reason: fault.NotFound, Op: "read the credentials of", Subject: vcc.Spec.VcIP,
		Err: fmt.Errorf("there is no Secret %q in %s or %s", vcc.Spec.Credentials, vcc.Namespace, fallback),
		Hint: fmt.Sprintf("create it: kubectl -n %s create secret generic %s --type kubernetes.io/basic-auth --from-literal username=NAME@DOMAIN --from-literal password=…",
			vcc.Namespace, vcc.Spec.Credentials)}
}

// value is a key's, without the line end that an editor or echo leaves there.
func value(s *corev1.Secret, key string) string {
	return strings.TrimRight(string(s.Data[key]), "\r\n")
}

// defaultCAKey is the key of a CA where the reference names none.
const defaultCAKey = "ca.crt"

// authority reads the PEM certificates that a reference names.
func authority(ctx context.Context, c client.Reader, ns string, ref *v1alpha1.KeyReference) (pem []byte, version string, err error) {
	key := ref.Key
	if key == "" {
		key = defaultCAKey
	}
	var data map[string][]byte
	obj, kind := client.Object(&corev1.Secret{}), "Secret"
	if ref.ConfigMap != "" {
		obj, kind = &corev1.ConfigMap{}, "ConfigMap"
	}
	name := client.ObjectKey{Namespace: ns, Name: ref.ConfigMap + ref.Secret}
	if err := c.Get(ctx, name, obj); err != nil {
		return nil, "", readFault(kind, name, err)
	}
	switch o := obj.(type) {
	case *corev1.Secret:
		data = o.Data
	case *corev1.ConfigMap:
		data = texts(o)
	}
	pem, ok := data[key]
	if !ok {
		return nil, versionOf(obj), &fault.Error{
			Reason: fault.NotFound, Op: "read " + kind, Subject: name.String(), Err: fmt.Errorf("it has no key %q", key),
			Hint: "put the CA certificates there in PEM, or name the right key in spec.ca.key"}
	}
	return pem, versionOf(obj), nil
}

// texts is all data of a ConfigMap.
func texts(o *corev1.ConfigMap) map[string][]byte {
	data := make(map[string][]byte, len(o.Data)+len(o.BinaryData))
	for k, v := range o.BinaryData {
		data[k] = v
	}
	for k, v := range o.Data {
		data[k] = []byte(v)
	}
	return data
}

func readFault(kind string, name client.ObjectKey, err error) error {
	if apierrors.IsNotFound(err) {
		return &fault.Error{
			Reason: fault.NotFound, Op: "read " + kind, Subject: name.String(), Err: errors.New("it is not there"),
			Hint: "create it with the CA certificates in PEM, or correct spec.ca"}
	}
	return &fault.Error{Reason: fault.Internal, Op: "read " + kind, Subject: name.String(), Err: err}
}

// versionOf identifies one state of an object.
func versionOf(o client.Object) string {
	return string(o.GetUID()) + "/" + o.GetResourceVersion()
}

// The index of resources by what they refer to.
const indexField = "references"

func addIndex(ix client.FieldIndexer) error {
	return ix.IndexField(context.Background(), &v1alpha1.VsphereCloudConfig{}, indexField, func(o client.Object) []string {
		vcc, ok := o.(*v1alpha1.VsphereCloudConfig)
		if !ok {
			return nil
		}
		return references(vcc)
	})
}

// references are the names of what a resource refers to, by kind.
func references(vcc *v1alpha1.VsphereCloudConfig) []string {
	refs := []string{"Secret/" + vcc.Spec.Credentials}
	if ca := vcc.Spec.CA; ca != nil && ca.ConfigMap != "" {
		refs = append(refs, "ConfigMap/"+ca.ConfigMap)
	} else if ca != nil {
		refs = append(refs, "Secret/"+ca.Secret)
	}
	return refs
}

// users finds the resources that refer to an object.
type users struct{ client.Reader }

func (u users) ofSecret(ctx context.Context, o client.Object) []reconcile.Request {
	return u.of(ctx, "Secret/", o)
}

func (u users) ofConfigMap(ctx context.Context, o client.Object) []reconcile.Request {
	return u.of(ctx, "ConfigMap/", o)
}

// of lists those of the object's own namespace, and all where it is in kube-system.
// The list comes from the cache; it cannot fail while the manager runs.
func (u users) of(ctx context.Context, kind string, o client.Object) []reconcile.Request {
	opts := []client.ListOption{client.MatchingFields{indexField: kind + o.GetName()}}
	if o.GetNamespace() != fallback {
		opts = append(opts, client.InNamespace(o.GetNamespace()))
	}
	var list v1alpha1.VsphereCloudConfigList
	if err := u.List(ctx, &list, opts...); err != nil {
		return nil
	}
	return requests(list.Items)
}
