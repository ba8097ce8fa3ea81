package render

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// OpenShift admits pods by security context constraints (SCC). What the drivers
// get there is the least that admits them:
//
//   - the CSI node plugin: privileged
//   - the cloud provider: hostnetwork-v2, with its fixed user id dropped
//   - the CSI controller and webhook: nothing; with their fixed user ids dropped
//     they run under restricted-v2, which every account may use
//
// The right to use an SCC is a Role of our own in the account's namespace, so that
// the operator needs that right alone to give it, and not the right to bind roles.

func (r *renderer) openShift() bool {
	return strings.EqualFold(r.in.Cluster.Distribution, "openshift")
}

func (r *renderer) constraints(s *source) {
	if !r.openShift() {
		return
	}
	switch s.driver {
	case matrix.CPI:
		r.allowSCC(s, CPINamespace, "cloud-controller-manager", "hostnetwork-v2")
	case matrix.CSI:
		r.allowSCC(s, CSINamespace, drivers.Node, "privileged")
	}
}

func (r *renderer) allowSCC(s *source, namespace, account, scc string) {
	name := "vdo-" + account + "-scc"
	role := object("rbac.authorization.k8s.io/v1", "Role", namespace, name)
	role.Object["rules"] = []any{map[string]any{
		"apiGroups":     []any{"security.openshift.io"},
		"resources":     []any{"securitycontextconstraints"},
		"resourceNames": []any{scc},
		"verbs":         []any{"use"},
	}}
	binding := object("rbac.authorization.k8s.io/v1", "RoleBinding", namespace, name)
	binding.Object["roleRef"] = map[string]any{
		"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name,
	}
	binding.Object["subjects"] = []any{map[string]any{
		"kind": "ServiceAccount", "name": account, "namespace": namespace,
	}}
	r.add(s, StageConfig, role, Merge)
	r.add(s, StageConfig, binding, Merge)
}

// letOpenShiftChooseUser drops fixed user and group ids, which lie outside of
// every namespace's range.
func (r *renderer) letOpenShiftChooseUser(o *unstructured.Unstructured) {
	if !r.openShift() {
		return
	}
	spec := podSpec(o)
	holders := append(containers(spec), spec)
	for _, h := range holders {
		context, ok := h["securityContext"].(map[string]any)
		if !ok {
			continue
		}
		delete(context, "runAsUser")
		delete(context, "runAsGroup")
		if len(context) == 0 {
			delete(h, "securityContext")
		}
	}
}
