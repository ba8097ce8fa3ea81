// Package metal3 gives tests Metal3's BareMetalHosts: a stand-in CRD, and hosts as Metal3 and ViNO leave them.
package metal3

import (
	"cmp"
	"context"
	_ "embed" // a CRD
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// Kind is the kind of hosts.
var Kind = schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}

// CRD is the definition of the kind.
//
//go:embed baremetalhosts.yaml
var CRD string

// Install makes the API server serve BareMetalHosts, HostDeployPolicies and Metal3Machines.
func Install(t testing.TB, cfg *rest.Config) {
	t.Helper()
	paths := []string{filepath.Join(toolchain.Root(), "test", "metal3")}
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{Paths: paths}); err != nil {
		t.Fatal(err)
	}
}

// Host describes a host. The zero value of a field means the usual one.
type Host struct {
	Namespace, Name string
	Labels          map[string]string
	State           string // default: available
	Allowed         string // namespaces that may hold it; "" leaves the annotation out
	Address         string // IPv4 on the network oam; "" leaves the network data out
}

// Create creates a host with the Secrets that it names.
func Create(ctx context.Context, c client.Client, h Host) error {
	for _, s := range h.secrets() {
		if err := c.Create(ctx, s); err != nil {
			return err
		}
	}
	o := h.object()
	if err := c.Create(ctx, o); err != nil {
		return err
	}
	patch := client.MergeFrom(o.DeepCopy())
	state := cmp.Or(h.State, "available")
	o.Object["status"] = map[string]any{
		"provisioning":      map[string]any{"ID": "", "state": state, "image": map[string]any{"url": ""}},
		"operationalStatus": "OK", "poweredOn": true, "errorMessage": "", "errorCount": int64(0), "hardwareProfile": "",
		"goodCredentials": map[string]any{}, "triedCredentials": map[string]any{},
	}
	return c.Status().Patch(ctx, o, patch)
}

func (h Host) object() *unstructured.Unstructured {
	spec := map[string]any{
		"online": true,
		"bmc": map[string]any{
			"address": "redfish+https://bmc." + h.Name + ".example/redfish/v1/Systems/1", "credentialsName": h.Name + "-bmc",
		},
	}
	if h.Address != "" {
		spec["networkData"] = map[string]any{"name": h.Name + "-network", "namespace": h.Namespace}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(Kind)
	o.SetNamespace(h.Namespace)
	o.SetName(h.Name)
	o.SetLabels(h.Labels)
	if h.Allowed != "" {
		o.SetAnnotations(map[string]string{"sip.airshipit.org/allowed-namespaces": h.Allowed})
	}
	return o
}

func (h Host) secrets() []*corev1.Secret {
	all := []*corev1.Secret{{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: h.Name + "-bmc"},
		Data:       map[string][]byte{"username": []byte("root"), "password": []byte("bmc-password-of-" + h.Name)},
	}}
	if h.Address != "" {
		data := fmt.Sprintf(`{"networks":[{"id":"oam","type":"ipv4","link":"eth0","ip_address":%q},{"id":"pxe","type":"ipv4","link":"eth1","ip_address":"172.30.0.1"}]}`, h.Address)
		all = append(all, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: h.Name + "-network"}, Data: map[string][]byte{"networkData": []byte(data)},
		})
	}
	return all
}
