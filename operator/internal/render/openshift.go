package render

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

func (r *renderer) openShift() bool {
	return strings.EqualFold(r.in.Cluster.Distribution, "openshift")
}

// constraints gives drivers the least OpenShift security context constraints (SCC) that admit them: privileged for
// the CSI node plugin, hostnetwork-v2 for the cloud provider. The CSI controller and webhook run under
// restricted-v2, which every account may use.
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

// allowSCC gives an account the use of an SCC, by a Role of our own in its namespace. So the operator needs only that
// permission itself, and not the one to bind roles.
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

// letOpenShiftChooseUser removes fixed user and group ids, which are outside of every namespace's range.
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

// MirrorSet returns the ImageDigestMirrorSet that redirects OpenShift's nodes to the mirror. As in `vdo-bundle
// mirror-config`, nodes pull missing images from upstream, unless the entry has another policy.
func MirrorSet(entries mirrorset.Entries) Object {
	o := &unstructured.Unstructured{Object: entries.Object(mirrorset.Digests, MirrorSetName, mirrorset.AllowContactingSource)}
	// The version is that of the object's form: the entries contain all that depends on the drivers' releases.
	o.SetLabels(map[string]string{LabelManagedBy: ManagedBy, LabelDriver: string(drivers.MirrorSet), LabelVersion: mirrorset.Digests.Version})
	return Object{Unstructured: o, Driver: drivers.MirrorSet, Apply: Merge}
}

// addMirrorSet adds it in a stage before all pods, whose images it redirects.
func (r *renderer) addMirrorSet() {
	if len(r.in.Mirrored) == 0 {
		return
	}
	o := MirrorSet(r.in.Mirrored)
	st := r.stage(StageMirrors)
	st.Objects, st.Drivers = append(st.Objects, o), []matrix.Driver{drivers.MirrorSet}
	r.waitFor(StageMirrors, Wait{Kind: Exists, Object: RefOf(o.Unstructured), Why: "the nodes find the drivers' images by it"})
}
