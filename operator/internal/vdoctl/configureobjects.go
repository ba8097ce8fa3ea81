package vdoctl

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// objects are all resources, in the order in which they are written.
func (d *draft) objects() []client.Object {
	var out []client.Object
	if d.secret != nil {
		out = append(out, d.secret)
	}
	if d.caMap != nil {
		out = append(out, d.caMap)
	}
	out = append(out, d.ofFile(out)...)
	return append(out, d.bundle, d.vcenter, d.config)
}

// ofFile are the file's other vCenters, and the Secrets and ConfigMaps in it that vCenters and the
// bundle name, but for those that the answers make.
func (d *draft) ofFile(made []client.Object) (out []client.Object) {
	if d.file == nil {
		return nil
	}
	add := func(x client.Object) {
		same := func(y client.Object) bool { return describeObject(x) == describeObject(y) }
		if !slices.ContainsFunc(made, same) && !slices.ContainsFunc(out, same) {
			out = append(out, x)
		}
	}
	for _, ref := range d.references() {
		if x := d.file.secret(d.namespace, ref.Secret); x != nil {
			add(x)
		}
		if x := d.file.maps[client.ObjectKey{Namespace: d.namespace, Name: ref.ConfigMap}]; x != nil {
			add(x)
		}
	}
	for i := range d.vcenters {
		if v := &d.vcenters[i]; v != d.vcenter {
			add(v)
		}
	}
	return out
}

// authority is the ConfigMap of the vCenter's authority, with what the one of the file has besides.
func (d *draft) authority(name string) *corev1.ConfigMap {
	out := &corev1.ConfigMap{ObjectMeta: d.meta(name)}
	if d.file != nil && d.file.maps[client.ObjectKeyFromObject(out)] != nil {
		out = d.file.maps[client.ObjectKeyFromObject(out)].DeepCopy()
	}
	if out.Data == nil {
		out.Data = map[string]string{}
	}
	out.Data[v1alpha1.DefaultCAKey] = string(d.ca)
	delete(out.BinaryData, v1alpha1.DefaultCAKey) // a key is in one of them
	return out
}

// references are the Secrets and ConfigMaps that vCenters and the bundle name.
func (d *draft) references() (out []v1alpha1.KeyReference) {
	for i := range d.vcenters {
		v := &d.vcenters[i].Spec
		out = append(out, v1alpha1.KeyReference{Secret: v.Credentials})
		if v.CA != nil {
			out = append(out, *v.CA)
		}
	}
	pull, _ := d.bundle.PullSecretName()
	ca, _ := d.bundle.CAReference()
	return append(append(out, v1alpha1.KeyReference{Secret: pull}, ca), d.bundle.TrustSources()...)
}
