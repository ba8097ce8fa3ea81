package sipcluster

import (
	"fmt"
	"io"
	"strings"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// render is a double of services.Render with the same contract: a Deployment that rolls when
// its ConfigMap changes, a Service, the ConfigMap, and a Secret made by chance once.
func (w *world) render(in services.Input) services.Set {
	var set services.Set
	add := func(kind services.Kind, i int, common airship.Service, port, end int32, role airship.Role) {
		name := services.Name(in.Cluster.Name, kind, i)
		s := services.Service{Name: name, Kind: kind, Ports: []services.Ports{{Start: port, End: end}}}
		s.Image, s.Err = in.Images.Image(name, kind, common.Image)
		if w.wrong[kind] != nil {
			s.Err = w.wrong[kind]
		}
		if s.Err == nil {
			s.Objects = w.objectsOf(in, s, common, hostsText(in.Hosts[role], common.NodeInterfaceID))
		}
		set.Services = append(set.Services, s)
	}
	for i, s := range in.Spec.LoadBalancerControlPlane {
		add(services.LoadBalancerControlPlane, i, s.Service, s.NodePort, s.NodePort, airship.RoleControlPlane)
	}
	for i, s := range in.Spec.LoadBalancerWorker {
		add(services.LoadBalancerWorker, i, s.Service, s.NodePortRange.Start, s.NodePortRange.End, airship.RoleWorker)
	}
	for i, s := range in.Spec.JumpHost {
		add(services.JumpHost, i, s.Service, s.NodePort, s.NodePort, airship.RoleWorker)
	}
	return set
}

func hostsText(hosts []services.Host, id string) string {
	var out []string
	for _, h := range hosts {
		text := h.Name
		for _, a := range h.Addresses[id] {
			text += "=" + a.String()
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func (w *world) objectsOf(in services.Input, s services.Service, common airship.Service, hosts string) []*unstructured.Unstructured {
	key, kept := in.Kept[s.Name]["key"]
	if !kept {
		b := make([]byte, 8)
		_, err := io.ReadFull(in.Rand, b)
		require.NoError(w, err)
		key = fmt.Appendf(nil, "%x", b)
	}
	text := fmt.Sprintf(`
- {apiVersion: v1, kind: ConfigMap, data: {hosts: %q}}
- {apiVersion: v1, kind: Secret, stringData: {}, data: {key: %q}}
- {apiVersion: v1, kind: Service, spec: {type: NodePort, selector: {app: %[3]s}, ports: [{port: 80, nodePort: %[4]d}]}}
- apiVersion: apps/v1
  kind: Deployment
  spec:
    replicas: 2
    selector: {matchLabels: {app: %[3]s}}
    template:
      metadata: {labels: {app: %[3]s}, annotations: {hosts: %[1]q}}
      spec: {containers: [{name: c, image: %[5]q}]}
`, hosts, b64(key), s.Name, s.Ports[0].Start, s.Image)
	var all []*unstructured.Unstructured
	var parsed []map[string]any
	require.NoError(w, yaml.Unmarshal([]byte(text), &parsed))
	for _, o := range parsed {
		delete(o, "stringData")
		u := &unstructured.Unstructured{Object: o}
		u.SetNamespace(in.Cluster.Namespace)
		u.SetName(s.Name)
		if u.GetKind() == "Service" && common.ClusterIP != nil && *common.ClusterIP != "" {
			require.NoError(w, unstructured.SetNestedField(u.Object, *common.ClusterIP, "spec", "clusterIP"))
		}
		all = append(all, u)
	}
	return all
}
