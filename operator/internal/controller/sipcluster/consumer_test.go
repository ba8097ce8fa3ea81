package sipcluster

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

const machines = `
metadata: {name: metal3machines.infrastructure.cluster.x-k8s.io}
spec:
  group: infrastructure.cluster.x-k8s.io
  names: {kind: Metal3Machine, plural: metal3machines}
  scope: Namespaced
  versions:
    - name: v1beta1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func installMachines(t testing.TB, cfg *rest.Config) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(machines), crd))
	all := envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}}
	_, err := envtest.InstallCRDs(cfg, all)
	require.NoError(t, err)
}

func (w *world) machine(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta1")
	o.SetKind("Metal3Machine")
	o.SetNamespace(w.metal)
	o.SetName(name)
	return o
}

// take has a machine of a Cluster use a host. It selects the hosts of a SIPCluster; "" for any.
func (w *world) take(host, machine, cluster, selects string) {
	w.Helper()
	o := w.machine(machine)
	o.SetLabels(map[string]string{labelCluster: cluster})
	if selects != "" {
		labels := map[string]any{airship.LabelClusterNamespace: w.ns, airship.LabelClusterName: selects}
		o.Object["spec"] = map[string]any{"hostSelector": map[string]any{"matchLabels": labels}}
	}
	require.NoError(w, w.Create(w.Context(), o))
	w.edit(host, func(h *choose.BareMetalHost) {
		h.Spec.ConsumerRef = corev1.ObjectReference{
			APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: w.metal, Name: machine,
		}
	})
}

// machineHas sets the addresses of a machine, as Cluster API does some time after it has a host.
func (w *world) machineHas(name string, addresses ...string) {
	w.Helper()
	all := []any{map[string]any{"type": "Hostname", "address": name}}
	for _, a := range addresses {
		all = append(all, map[string]any{"type": "InternalIP", "address": a})
	}
	o := w.machine(name)
	require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.metal, Name: name}, o))
	require.NoError(w, unstructured.SetNestedSlice(o.Object, all, "status", "addresses"))
	require.NoError(w, w.Update(w.Context(), o))
}

// Services lead to no host that the machine of another Cluster uses, and Ready names it.
func TestHostsThatAnotherClusterUses(t *testing.T) {
	w := start(t)
	_, r := w.served()
	leads := func(want ...string) {
		t.Helper()
		w.settle(r, "t")
		require.Equal(t, want, w.backends("t", services.LoadBalancerWorker))
	}
	const a, b = "a=10.1.1.97", "b=10.1.1.98"
	w.take("a", "m-a", "red", "")
	leads(a, b)
	require.Equal(t, "red", w.get("t").Status.ClusterName)
	w.take("b", "m-b", "blue", "")
	leads(a)
	why := w.metal + "/b: Metal3Machine " + w.metal + `/m-b of Cluster "blue" uses it`
	w.says("t", airship.ReasonInfraServiceFailure, why, true)
	require.Contains(t, w.get("t").Status.Hosts[1].Problem, "services leave it out")
	require.Equal(t, []string{"a", "b"}, names(w.labelled("t")), "it is held")

	w.change("t", balanced+"clusterName: blue\n")
	leads(b)
	w.change("t", balanced)
	leads(b)
	w.take("a", "m-c", "green", "t")
	leads(a)
	w.take("b", "m-d", "green", "")
	leads(a, b)
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
}
