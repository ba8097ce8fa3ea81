// Package deploy_test applies the install manifests to a real API server, and
// proves what the operator's account may do there, and what it may not.
package deploy_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

func TestMain(m *testing.M) { cluster.Main(m) }

const (
	namespace = "vmware-system-vdo"
	manager   = client.FieldOwner("vdo-operator")
)

// read returns the objects of a manifest.
func read(t *testing.T, path string) []*unstructured.Unstructured {
	data := must.Have(os.ReadFile(path))(t)
	return decode(t, path, data)
}

func decode(t *testing.T, path string, data []byte) []*unstructured.Unstructured {
	all, err := cluster.Objects(data)
	require.NoError(t, err, path)
	return all
}

func apply(ctx context.Context, c client.Client, u *unstructured.Unstructured, opts ...client.ApplyOption) error {
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u.DeepCopy()), append(opts, manager, client.ForceOwnership)...)
}

// install applies what docs/install.md says to, and returns a client of the
// administrator and one of the operator.
func install(t *testing.T) (admin, operator client.Client) {
	cfg := cluster.Config(t)
	admin = cluster.Client(t, cfg)
	files := []string{"driver-namespaces.yaml", "namespaces.yaml", "rbac.yaml", deploy.RightsPolicy, "operator.yaml",
		"networkpolicy.yaml"}
	for _, f := range files {
		for _, u := range read(t, f) {
			require.NoError(t, apply(t.Context(), admin, u), "%s: %s %s", f, u.GetKind(), u.GetName())
		}
	}
	return admin, cluster.Client(t, cluster.Operator.Config(cfg))
}

// roles are all roles of the install manifests, with "" for cluster roles'
// namespace.
func roles(t *testing.T) map[string][]rbacv1.PolicyRule {
	out := map[string][]rbacv1.PolicyRule{}
	for _, u := range slices.Concat(read(t, "rbac.yaml"), read(t, "rbac-antrea.yaml")) {
		if u.GetKind() != "Role" && u.GetKind() != "ClusterRole" {
			continue
		}
		var r rbacv1.Role
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &r))
		out[u.GetNamespace()+"/"+u.GetName()] = r.Rules
	}
	return out
}

func TestNoRuleHasAWildcardAndPowerIsGivenByName(t *testing.T) {
	all := roles(t)
	require.Len(t, all, 8)
	for name, rules := range all {
		for _, r := range rules {
			fields := slices.Concat(r.APIGroups, r.Resources, r.ResourceNames, r.Verbs, r.NonResourceURLs)
			for _, f := range fields {
				require.NotContains(t, f, "*", "%s: %+v", name, r)
			}
			require.NotContains(t, r.Verbs, "impersonate")
			require.NotContains(t, r.Verbs, "deletecollection")
			for _, power := range []string{"escalate", "bind", "use"} {
				if slices.Contains(r.Verbs, power) {
					require.NotEmpty(t, r.ResourceNames, "%s: %s without names", name, power)
				}
			}
			writes := slices.ContainsFunc(r.Verbs, func(v string) bool { return v != "get" && v != "list" && v != "watch" })
			review := slices.Contains(r.Resources, "tokenreviews") || slices.Contains(r.Resources, "subjectaccessreviews")
			if writes && strings.HasPrefix(name, "/") && !review && name != "/vdo-operator-metrics-reader" {
				require.NotEmpty(t, r.ResourceNames, "cluster-wide rule that changes things without names: %+v", r)
			}
		}
	}
}

// never are objects of old releases that are not installed.
var never = []string{"snapshot-webhook", "snapshot-webhook-runner", "snapshot-webhook-role",
	"snapshot-validation-service", "snapshot-validation-deployment", "validation-webhook.snapshot.storage.k8s.io"}

// releasesOf returns the objects of the releases of some drivers.
func releasesOf(t *testing.T, dir string, drivers ...matrix.Driver) (out []*unstructured.Unstructured) {
	for _, text := range upstream.Releases() {
		id := must.Have(matrix.ParseReleaseID(text))(t)
		if !slices.Contains(drivers, id.Driver) {
			continue
		}
		for _, name := range upstream.Files(id) {
			if id.Version.Minor().Major == 7 && strings.HasPrefix(name, "groupsnapshot") {
				continue // installed from snapshotter 8 on only, which replaces their stored version
			}
			data := must.Have(upstream.Read(dir, id, name))(t)
			for _, u := range decode(t, name, data) {
				if !slices.Contains(never, u.GetName()) {
					out = append(out, u)
				}
			}
		}
	}
	return out
}

// The operator's account applies and removes every object of every release of the cloud provider,
// the storage driver and the snapshot controller.
func TestTheOperatorMayInstallTheDrivers(t *testing.T) {
	upstream.Each(t, mayInstallTheDrivers)
}

func mayInstallTheDrivers(t *testing.T, dir string) {
	_, op := install(t)
	all := releasesOf(t, dir, matrix.SnapshotController, matrix.CPI, matrix.CSI)
	for _, u := range all {
		if u.GetKind() == "ValidatingWebhookConfiguration" {
			placeholder(u)
		}
		if u.GetKind() == "CSIDriver" || u.GetKind() == "DaemonSet" || u.GetKind() == "Deployment" {
			// Parts of these are immutable: releases replace each other, here one after the other.
			require.NoError(t, client.IgnoreNotFound(op.Delete(t.Context(), u.DeepCopy())))
		}
		err := apply(t.Context(), op, u)
		require.False(t, apierrors.IsForbidden(err), "%s %s/%s: %v", u.GetKind(), u.GetNamespace(), u.GetName(), err)
		require.NoError(t, err, "%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
		require.NoError(t, op.Get(t.Context(), client.ObjectKeyFromObject(u), u.DeepCopy()))
	}
	for _, u := range all {
		err := op.Delete(t.Context(), u.DeepCopy())
		switch u.GetKind() {
		case "Namespace", "CustomResourceDefinition":
			require.True(t, apierrors.IsForbidden(err), "%s %s is never deleted: %v", u.GetKind(), u.GetName(), err)
		default:
			require.NoError(t, client.IgnoreNotFound(err), "%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
		}
	}
}

// With the rights of rbac-antrea.yaml, and only with them, the account installs and
// removes every object of every Antrea release.
func TestTheOperatorMayInstallAntreaWhereItIsAskedTo(t *testing.T) {
	upstream.Each(t, mayInstallAntrea)
}

func mayInstallAntrea(t *testing.T, dir string) {
	_, op := install(t)
	all := releasesOf(t, dir, matrix.CNI)
	for _, u := range all {
		require.True(t, apierrors.IsForbidden(apply(t.Context(), op, u, client.DryRunAll)), "%s %s without the rights", u.GetKind(), u.GetName())
	}
	bind := access{"bind", "rbac.authorization.k8s.io", "clusterroles", "", "antctl"}
	op, end := besides(t, "rbac-antrea.yaml", bind)
	defer end()
	// The API server takes new rights up in its own time.
	require.Eventually(t, func() bool {
		return allowed(t, op, bind) &&
			allowed(t, op, access{"create", "apps", "daemonsets", "kube-system", "antrea-agent"})
	}, time.Minute, 50*time.Millisecond)
	for _, u := range all {
		require.NoError(t, apply(t.Context(), op, u, client.DryRunAll), "%s %s", u.GetKind(), u.GetName())
	}
	for _, u := range all {
		err := op.Delete(t.Context(), u.DeepCopy(), client.DryRunAll)
		if u.GetKind() == "CustomResourceDefinition" {
			require.True(t, apierrors.IsForbidden(err), "%s is never deleted: %v", u.GetName(), err)
			continue
		}
		require.True(t, apierrors.IsNotFound(err), "%s %s: %v", u.GetKind(), u.GetName(), err)
	}
}

// placeholder takes out what upstream leaves for a script to fill in.
func placeholder(u *unstructured.Unstructured) {
	hooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	for _, h := range hooks {
		if m, ok := h.(map[string]any); ok {
			unstructured.RemoveNestedField(m, "clientConfig", "caBundle")
		}
	}
	_ = unstructured.SetNestedSlice(u.Object, hooks, "webhooks")
}

// access is one question to the API server.
type access struct{ verb, group, resource, ns, name string }

func allowed(t *testing.T, c client.Client, a access) bool {
	resource, sub, _ := strings.Cut(a.resource, "/")
	r := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: a.verb, Group: a.group, Resource: resource, Subresource: sub, Namespace: a.ns, Name: a.name}}}
	require.NoError(t, c.Create(t.Context(), r))
	return r.Status.Allowed
}

// besides gives the operator the rights of one manifest more, while a test runs: others prove
// what the account may not do without, such as what is given.
func besides(t *testing.T, manifest string, gives access) (op client.Client, end func()) {
	admin, op := install(t)
	rights := read(t, manifest)
	for _, u := range rights {
		require.NoError(t, apply(t.Context(), admin, u))
	}
	return op, func() {
		for _, u := range rights {
			require.NoError(t, admin.Delete(t.Context(), u))
		}
		require.Eventually(t, func() bool { return !allowed(t, op, gives) }, time.Minute, 50*time.Millisecond)
	}
}

// Rights that are not given unless they are requested. Classes have the site's names: those on them are
// without names. One mirror set has a name of the operator's, and nodes are reconfigured by it: the rights
// are on that one alone, that to make it too, which holds for who names it in the request. Whether nodes
// have taken it up may be read, and nothing else of how they are configured.
func TestTheOperatorMayDoWhatIsAskedForAndNoMore(t *testing.T) {
	verbs := func(a access, verbs string) (all []access) {
		for _, a.verb = range strings.Fields(verbs) {
			all = append(all, a)
		}
		return all
	}
	const classes, snapshots, mirrors, machines = "storage.k8s.io", "snapshot.storage.k8s.io", "config.openshift.io", "machineconfiguration.openshift.io"
	gold, snap := access{"", classes, "storageclasses", "", "gold"}, access{"", snapshots, "volumesnapshotclasses", "", "snap"}
	set, pool := access{"", mirrors, "imagedigestmirrorsets", "", "vdo-operator"}, access{"", machines, "machineconfigpools", "", "worker"}
	for manifest, c := range map[string]struct{ may, not []access }{
		"rbac-classes.yaml": {
			slices.Concat(verbs(gold, "create update patch get"), verbs(snap, "create update patch get")),
			slices.Concat(verbs(gold, "delete"), verbs(snap, "delete")),
		},
		"rbac-mirror-set.yaml": {
			append(verbs(set, "create get patch delete"), access{"list", machines, pool.resource, "", ""}),
			slices.Concat(verbs(set, "update deletecollection"), verbs(pool, "get watch patch update create delete"),
				verbs(access{"", mirrors, set.resource, "", "other"}, "get create patch delete"),
				verbs(access{"", mirrors, set.resource, "", ""}, "get create patch delete deletecollection"),
				verbs(access{"", mirrors, "imagetagmirrorsets", "", set.name}, "get create patch delete"),
				verbs(access{"", machines, "machineconfigs", "", ""}, "list")),
		},
	} {
		t.Run(manifest, func(t *testing.T) {
			_, op := install(t)
			for _, a := range c.may {
				readsClasses := a.verb == "get" && manifest == "rbac-classes.yaml" // what the operator may do anyway
				require.False(t, !readsClasses && allowed(t, op, a), "%+v", a)
			}
			op, end := besides(t, manifest, c.may[0])
			defer end()
			for _, a := range c.may {
				require.Eventually(t, func() bool { return allowed(t, op, a) }, time.Minute, 50*time.Millisecond, "%+v", a)
			}
			for _, a := range c.not {
				require.False(t, allowed(t, op, a), "%+v", a)
			}
		})
	}
}

func TestTheOperatorMayDoNoMore(t *testing.T) {
	_, op := install(t)
	for _, a := range []access{
		{"update", "vdo.vmware.com", "driverbundles/finalizers", namespace, "x"}, {"update", "", "configmaps/finalizers", namespace, "x"}, // no owner of its objects blocks
		{"get", "", "secrets", "default", "x"}, {"list", "", "secrets", "", ""}, {"list", "", "secrets", "kube-system", ""},
		{"get", "", "configmaps", "default", "x"}, {"list", "", "configmaps", "", ""}, {"list", "apps", "deployments", "", ""}, {"list", "rbac.authorization.k8s.io", "roles", "", ""},
		{"update", "", "secrets", namespace, "x"}, {"update", "", "secrets", "kube-system", "other"}, {"create", "", "secrets", "kube-system", ""},
		{"create", "", "pods", namespace, ""}, {"create", "", "pods", "vmware-system-csi", ""}, {"create", "", "pods/exec", "kube-system", "x"},
		{"delete", "", "pods", "kube-system", "x"}, {"delete", "", "pods", namespace, "x"}, {"deletecollection", "", "pods", "vmware-system-csi", ""},
		{"create", "", "serviceaccounts/token", "kube-system", "cloud-controller-manager"},
		{"patch", "", "nodes", "", "x"}, {"delete", "", "persistentvolumes", "", "x"}, {"update", "", "persistentvolumes", "", "x"},
		{"delete", "", "namespaces", "", "vmware-system-csi"}, {"create", "", "namespaces", "", "other"}, {"patch", "", "namespaces", "", "kube-system"},
		{"patch", "apps", "daemonsets", "kube-system", "kube-proxy"}, {"create", "apps", "daemonsets", "kube-system", ""},
		{"create", "apps", "deployments", "default", ""}, {"patch", "apps", "deployments", namespace, "vdo-operator"},
		{"delete", "", "secrets", "kube-system", "cpi-global-secret"}, {"delete", "apps", "deployments", "kube-system", "snapshot-validation-deployment"}, // of earlier installations
		{"escalate", "rbac.authorization.k8s.io", "clusterroles", "", "cluster-admin"}, {"bind", "rbac.authorization.k8s.io", "clusterroles", "", "cluster-admin"},
		{"escalate", "rbac.authorization.k8s.io", "clusterroles", "", ""}, {"create", "rbac.authorization.k8s.io", "clusterroles", "", ""},
		{"patch", "rbac.authorization.k8s.io", "clusterroles", "", "vdo-operator"}, {"escalate", "rbac.authorization.k8s.io", "roles", namespace, "vdo-operator"},
		{"create", "rbac.authorization.k8s.io", "rolebindings", "kube-system", "other"},
		{"delete", "apiextensions.k8s.io", "customresourcedefinitions", "", "volumesnapshots.snapshot.storage.k8s.io"},
		{"patch", "apiextensions.k8s.io", "customresourcedefinitions", "", "vdoconfigs.vdo.vmware.com"},
		{"patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", "other"},
		{"create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", ""},
		{"delete", "vdo.vmware.com", "vdoconfigs", namespace, "x"}, {"get", "vdo.vmware.com", "vdoconfigs", "default", "x"},
		{"patch", "vdo.vmware.com", "vdoconfigs", "default", "x"}, {"patch", "vdo.vmware.com", "vdoconfigs/status", "default", "x"},
		{"update", "vdo.vmware.com", "vdoconfigs/status", namespace, "x"},
		{"list", "vdo.vmware.com", "vdoconfigs", "", ""}, {"create", "events.k8s.io", "events", "default", ""},
		{"impersonate", "", "users", "", "system:admin"}, {"approve", "certificates.k8s.io", "signers", "", "x"},
		{"update", "coordination.k8s.io", "leases", namespace, "other"},
		{"use", "security.openshift.io", "securitycontextconstraints", namespace, "privileged"},
		{"list", "discovery.k8s.io", "endpointslices", "default", ""}, {"get", "discovery.k8s.io", "endpointslices", "default", "other"},
	} {
		require.False(t, allowed(t, op, a), "%+v", a)
	}
}

// Whoever holds the operator's token can write what the drivers need, and no more, into the roles,
// bindings and Secrets that the account may write.
func TestTheOperatorsTokenGivesNoMoreThanTheDriversNeed(t *testing.T) {
	_, op := install(t)
	try := func(text string) error {
		return apply(t.Context(), op, decode(t, text, []byte("{"+text+"}"))[0], client.DryRunAll)
	}
	const rbac = "apiVersion: rbac.authorization.k8s.io/v1, kind: "
	role := rbac + "ClusterRole, metadata: {name: vsphere-csi-controller-role"
	rule := func(groups, resources, verbs string) string {
		return role + fmt.Sprintf("}, rules: [{apiGroups: [%s], resources: [%s], verbs: [%s]}]", groups, resources, verbs)
	}
	bind := func(name, subject string) string {
		return rbac + "ClusterRoleBinding, metadata: {name: vsphere-csi-controller-binding}, subjects: [{kind: " + subject +
			"}], roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + name + "}"
	}
	token := func(account string) string {
		return "apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: " +
			"antctl-service-account-token, namespace: vmware-system-csi, annotations: {kubernetes.io/service-account.name: " +
			account + "}}"
	}
	own := "ServiceAccount, namespace: vmware-system-vdo, name: vdo-operator"
	driver := "ServiceAccount, namespace: vmware-system-csi, name: vsphere-csi-controller"
	pods := func(account string) string {
		return "apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: kube-system, name: vsphere-cloud-controller-manager}, " +
			"spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]" +
			account + "}}}"
	}
	write, wide := "give no permission over", rule("'*'", "'*'", "'*'")
	others, roles, accounts := "add no rules to other roles", "bind the drivers' roles", "bind roles to the drivers'"
	const group = "rbac.authorization.k8s.io"

	require.Eventually(t, func() bool { // the policy comes into force in a while
		err := try(wide)
		return err != nil && strings.Contains(err.Error(), write)
	}, time.Minute, 50*time.Millisecond)
	for text, refused := range map[string]string{
		strings.Replace(rule("''", "nodes", "'*'"), "vsphere-csi-controller-role", "system:cloud-controller-manager", 1): "",
		rule("''", "nodes", "'*'"): write, rule("''", "secrets", "get"): write, rule("''", "pods/exec", "get"): write,
		rule("''", "replicationcontrollers", "create"): write, rule("''", "configmaps", "create"): "",
		rule("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "delete"): write,
		rule(group, "roles", "list"): "", rule(group, "roles", "patch"): write,
		role + "}, rules: [{nonResourceURLs: ['*'], verbs: [get]}]": write,
		pods(""): "", pods(", serviceAccountName: cloud-controller-manager"): "",
		pods(", serviceAccountName: clusterrole-aggregation-controller"): "run the drivers' accounts",
		pods(", serviceAccount: clusterrole-aggregation-controller"):     "run the drivers' accounts",
		role + "}, aggregationRule: {clusterRoleSelectors: [{}]}":        others,
		role + ", labels: {" + group + "/aggregate-to-view: x}}":         others,
		bind("vsphere-csi-controller-role", driver):                      "",
		bind("vsphere-csi-controller-role", own):                         accounts,
		bind("vsphere-csi-controller-role", "Group, name: all"):          accounts,
		bind("vdo-operator", driver):                                     roles,
		token("antctl"):                                                  "",
		token("vsphere-csi-controller"):                                  "make no Secret with an account's token",
	} {
		if err := try(text); refused == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, "the operator may "+refused, text)
		}
	}
	// Without the policy too the account cannot give more than it has.
	for _, text := range []string{
		bind("cluster-admin", driver),
		rbac + "Role, metadata: {namespace: kube-system, name: vdo-cloud-controller-manager-scc}, rules: [{apiGroups: [''], resources: [pods], verbs: [create]}]",
	} {
		require.ErrorContains(t, try(text), "attempting to grant RBAC permissions not currently held", text)
	}
}

// The pod is one that the namespace's own policy admits.
func TestThePodIsRestricted(t *testing.T) {
	admin, _ := install(t)
	require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vdo-operator"}})))
	var d appsv1.Deployment
	require.NoError(t, admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "vdo-operator"}, &d))
	spec := d.Spec.Template.Spec
	require.False(t, spec.HostNetwork)
	require.Empty(t, spec.Volumes)
	require.Equal(t, "vdo-operator", spec.Containers[0].Image, "the name that kustomize replaces")
	require.True(t, *spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem)

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "vdo-operator-"}, Spec: spec}
	require.NoError(t, admin.Create(t.Context(), pod, client.DryRunAll))
	root := pod.DeepCopy()
	root.Name, root.ResourceVersion, root.UID = "", "", ""
	root.Spec.Containers[0].SecurityContext = nil
	err := admin.Create(t.Context(), root, client.DryRunAll)
	require.ErrorContains(t, err, "PodSecurity", "the namespace enforces the policy")
}

func TestTheSamplesApply(t *testing.T) {
	admin, _ := install(t)
	files := must.Have(filepath.Glob("samples/*.yaml"))(t)
	require.NotEmpty(t, files)
	for _, f := range files {
		for _, u := range read(t, f) {
			require.NoError(t, admin.Create(t.Context(), u.DeepCopy(), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)), "%s: %s", f, u.GetName())
		}
	}
}

// Nothing gets in or out of the operator's namespace but what the policies name: Prometheus, and what the operator needs.
func TestTheNetworkPoliciesNameAllThatIsLetThrough(t *testing.T) {
	var in, out []string
	for i, u := range append(read(t, "networkpolicy.yaml"), read(t, "monitoring/scrape.yaml")...) {
		if u.GetKind() != "NetworkPolicy" {
			continue
		}
		var p networkingv1.NetworkPolicy
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p))
		if i == 0 {
			both := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
			require.Equal(t, networkingv1.NetworkPolicySpec{PolicyTypes: both}, p.Spec, "of all pods, nothing")
			continue
		}
		require.Equal(t, map[string]string{"app.kubernetes.io/name": "vdo-operator"}, p.Spec.PodSelector.MatchLabels)
		for _, rule := range p.Spec.Egress {
			require.NotEmpty(t, rule.Ports)
			for _, port := range rule.Ports {
				require.Nil(t, port.EndPort)
				out = append(out, fmt.Sprint(*port.Protocol, " ", port.Port))
			}
		}
		for _, rule := range p.Spec.Ingress {
			require.Len(t, rule.From, 1)
			require.Len(t, rule.Ports, 1)
			from := rule.From[0]
			in = append(in, fmt.Sprint(from.NamespaceSelector.MatchLabels, from.PodSelector.MatchLabels, rule.Ports[0].Port))
		}
	}
	require.Equal(t, []string{"map[kubernetes.io/metadata.name:monitoring] map[app.kubernetes.io/name:prometheus] 8443"}, in)
	require.Equal(t, []string{"UDP 53", "TCP 53", "UDP 5353", "TCP 5353", "TCP 443", "TCP 6443", "TCP 443", "TCP 5000"}, out)
}

// The patch of docs/security.md mounts the floor of trust, and names it to the operator.
func TestTheTrustFloorIsMountedAsTheGuideSays(t *testing.T) {
	admin, _ := install(t)
	text := must.Have(os.ReadFile("docs/security.md"))(t)
	_, patch, found := strings.Cut(string(text), "--type=json --patch='")
	require.True(t, found)
	patch, _, found = strings.Cut(patch, "'\n")
	require.True(t, found)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vdo-operator"}}
	require.NoError(t, admin.Patch(t.Context(), d, client.RawPatch(types.JSONPatchType, []byte(patch)), client.DryRunAll))
	spec := d.Spec.Template.Spec
	require.Contains(t, spec.Containers[0].Args, "--trust-floor="+spec.Containers[0].VolumeMounts[0].MountPath+"/policy.yaml")
	require.Equal(t, spec.Volumes[0].Name, spec.Containers[0].VolumeMounts[0].Name)
	require.Contains(t, string(text), "create configmap "+spec.Volumes[0].ConfigMap.Name+" --from-file=policy.yaml")
	require.Contains(t, spec.Containers[0].Args, "--leader-elect", "the rest is as it was")
}

// A GitOps tool that loses these files from its source deletes neither the kinds, with which all
// resources go, nor the namespaces. Volumes need what is in the drivers' namespaces: no file that a removal
// names has one.
func TestNoToolPrunesKindsAndNamespaces(t *testing.T) {
	keep := map[string]string{
		"argocd.argoproj.io/sync-options":   "Prune=false,Delete=false",
		"kustomize.toolkit.fluxcd.io/prune": "disabled",
		"kapp.k14s.io/delete-strategy":      "orphan",
		"helm.sh/resource-policy":           "keep",
	}
	for _, m := range append(slices.Concat(deploy.Manifests(), deploy.SIPManifests()), deploy.DriverNamespaces()) {
		for _, o := range decode(t, m.Name, m.Data) {
			if kind := o.GetKind(); kind == "Namespace" || kind == "CustomResourceDefinition" {
				require.Subset(t, o.GetAnnotations(), keep, "%s %s", kind, o.GetName())
				driver := kind == "Namespace" && o.GetName() != namespace && !deploy.OnlySIP(m.Name)
				require.Equal(t, m.Name == deploy.DriverNamespaces().Name, driver, "%s: %s", m.Name, o.GetName())
			}
		}
	}
}

// listed are the files of a folder that kubectl apply -k applies.
func listed(t *testing.T, dir string) []string {
	var k struct{ Resources []string }
	require.NoError(t, sigsyaml.Unmarshal(must.Have(os.ReadFile(filepath.Join(dir, "kustomization.yaml")))(t), &k))
	return k.Resources
}

func TestTheKustomizationListsEveryFile(t *testing.T) {
	want := []string{"namespaces.yaml", "rbac.yaml", "operator.yaml", "networkpolicy.yaml"}
	crds := must.Have(filepath.Glob("crds/*.yaml"))(t)
	require.ElementsMatch(t, append(want, crds...), listed(t, "."))
}

// What a bundle carries for the operator of SIPClusters is what the folder installs, byte for
// byte, and nothing of it is taken for the other operator's.
func TestSIPManifestsAreThoseOfTheFolder(t *testing.T) {
	var want, got []string
	for _, file := range listed(t, "sip") {
		data := must.Have(os.ReadFile(filepath.Join("sip", file)))(t)
		want = append(want, string(data))
	}
	for _, m := range append(deploy.Manifests(), deploy.SIPManifests()...) {
		if deploy.ForSIP(m.Name) {
			got = append(got, string(m.Data))
		}
	}
	require.ElementsMatch(t, want, got)
	names := map[string]bool{}
	for _, m := range deploy.Manifests() {
		require.False(t, deploy.OnlySIP(m.Name), m.Name)
		names[m.Name] = true
	}
	for _, m := range deploy.SIPManifests() {
		require.True(t, deploy.OnlySIP(m.Name), m.Name)
		require.False(t, names[m.Name], m.Name)
	}
}
