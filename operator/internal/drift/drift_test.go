package drift_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drift"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

const ours = "vdo-operator"

// ignore is a policy that leaves paths of a kind to others.
func ignore(kind string, paths ...string) *v1alpha1.DriftPolicy {
	return &v1alpha1.DriftPolicy{Ignore: []v1alpha1.DriftIgnore{{Kind: kind, Paths: paths}}}
}

// ofPods say what runs, as whom and with what of the node.
var ofPods = func() []string {
	var all []string
	for _, field := range []string{
		"lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "args", "command", "env", "envFrom", "volumeMounts", "volumeDevices",
		"image", "imagePullPolicy", "securityContext", "ports", "name", "workingDir", "terminationMessagePath", "stdin",
	} {
		all = append(all, "/spec/template/spec/containers/0/"+field, "/spec/template/spec/containers/0/"+field+"/0")
	}
	for _, field := range []string{
		"shareProcessNamespace", "hostAliases", "hostNetwork", "hostPID", "hostIPC", "hostUsers", "imagePullSecrets", "volumes", "serviceAccountName", "serviceAccount",
		"automountServiceAccountToken", "dnsConfig", "dnsPolicy", "securityContext", "runtimeClassName", "initContainers/0/image", "ephemeralContainers", "nodeName", "resourceClaims",
	} {
		all = append(all, "/spec/template/spec/"+field)
	}
	return all
}()

func TestPathsThatMayBeLeftToOthers(t *testing.T) {
	for _, path := range []string{
		"/spec/replicas", "/metadata/annotations/example.com~1note", "/spec/template/spec/nodeSelector", "/spec/template/spec/tolerations",
		"/spec/template/spec/containers/0/resources", "/spec/template/spec/priorityClassName", "/spec/template/metadata/annotations/restarted", "/metadata/labels/team",
		"/spec/template/spec/affinity/nodeAffinity", "/spec/template/spec/terminationGracePeriodSeconds", "/spec/minReadySeconds", "/spec/strategy/rollingUpdate/maxSurge", "/spec/revisionHistoryLimit",
		"/spec/template/spec/containers/1/resources/limits/memory", "/spec/template/spec/nodeSelector/1", "/spec/updateStrategy", "/spec/template/spec/topologySpreadConstraints",
	} {
		require.NoError(t, must.Err(drift.Parse(ignore("Deployment", path))), path)
	}
	for _, path := range []string{
		"/spec", "/metadata", "/spec/template", "/spec/template/spec", "/spec/template/spec/containers", "/spec/template/spec/containers/0",
		"/spec/template/spec/containers/0/image", "/spec/template/spec/containers/1/securityContext", "/spec/template/spec/containers/0/securityContext/privileged",
		"/spec/template/spec/initContainers/0/resources", "/spec/selector/matchLabels", "/spec/template/metadata/labels", "/spec/template/spec/volumes",
		"/spec/template/spec/serviceAccountName", "/spec/template/spec/hostNetwork", "/metadata/labels", "/metadata/labels/vdo.vmware.com~1driver",
		"/metadata/finalizers", "/rules", "/rules/0/verbs", "/roleRef", "/subjects", "/webhooks/0/clientConfig", "/kind", "", "spec/replicas", "/", "/spec//replicas", "/a~b", "/a~2",
		"/spec/template/spec/containers/*/resources", "/spec/template/spec/containers/vsphere-csi-controller/resources", "/metadata/annotations/*",
	} {
		_, err := drift.Parse(ignore("Deployment", path))
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), path)
		require.Contains(t, err.Error(), "spec.drift.ignore[0]", path)
	}
	for _, path := range append(ofPods, "/spec/paused", "/data", "/metadata/annotations", "/metadata/ownerReferences/0", "/metadata/annotations/vdo.vmware.com~1x",
		"/spec/template/metadata/annotations/container.apparmor.security.beta.kubernetes.io~1vsphere-csi-node", "/spec/template/metadata/annotations/vdo.vmware.com~1config-hash",
		"/spec/template/metadata/annotations/seccomp.security.alpha.kubernetes.io~1pod", "/spec/template/metadata/annotations") {
		for _, kind := range []string{"Deployment", "DaemonSet"} {
			_, err := drift.Parse(ignore(kind, path))
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), path)
			require.ErrorContains(t, err, "always repaired", path)
		}
	}
	for kind, path := range map[string]string{
		"ConfigMap": "/data/vsphere.conf", "Service": "/spec/ports", "ServiceAccount": "/imagePullSecrets", "StorageClass": "/parameters",
		"ValidatingWebhookConfiguration": "/webhooks/0/failurePolicy", "APIService": "/spec/caBundle", "Other": "/spec/replicas",
	} {
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(must.Err(drift.Parse(ignore(kind, path)))), path)
		require.NoError(t, must.Err(drift.Parse(ignore(kind, "/metadata/annotations/team"))), kind)
	}
	for _, path := range []string{"tolerations/0", "tolerations/0/effect", "topologySpreadConstraints/0/whenUnsatisfiable",
		"affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/values"} {
		rules, err := drift.Parse(ignore("Deployment", "/spec/template/spec/"+path))
		require.ErrorContains(t, err, "no names", path)
		o := deployment(t, `{"spec":{"template":{"spec":{"tolerations":[{"key":"a","effect":"NoSchedule"}]}}}}`)
		require.Equal(t, o, rules.Omit(render.Object{Unstructured: o}, o.DeepCopy(), ours), path)
	}
	for _, kind := range []string{"Secret", "CustomResourceDefinition", "Namespace", "CSIDriver", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"} {
		_, err := drift.Parse(ignore(kind, "/metadata/annotations/a"))
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), kind)
	}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal([]byte(text), &o.Object))
	return o
}

func deployment(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := object(t, text)
	o.SetAPIVersion("apps/v1")
	o.SetKind("Deployment")
	o.SetNamespace("vmware-system-csi")
	o.SetName("vsphere-csi-controller")
	return o
}

// live is an object of which another manager has set fields; the rest is ours.
func live(t *testing.T, text, theirs string) *unstructured.Unstructured {
	t.Helper()
	o := deployment(t, text)
	fields := append(o.GetManagedFields(), metav1.ManagedFieldsEntry{Manager: ours, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{},"f:paused":{}}}`)})
	if theirs != "" {
		now := metav1.Now()
		fields = append(fields, metav1.ManagedFieldsEntry{Manager: "scaler", Time: &now, FieldsV1: metav1.NewFieldsV1(theirs)})
	}
	o.SetManagedFields(fields)
	return o
}

func TestWhatIsAppliedWhereAFieldIsLeftToOthers(t *testing.T) {
	const containers = `{"spec":{"template":{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"1"}}},{"name":"b"}]}}}}`
	for name, c := range map[string]struct {
		path, desired, live, theirs, applied string
		apply                                render.Strategy
	}{
		"an autoscaler has set it":   {"/spec/replicas", `{"spec":{"replicas":3}}`, `{"metadata":{"managedFields":[{"manager":"hpa","subresource":"scale","fieldsV1":{"f:spec":{"f:replicas":{}}}}]},"spec":{"replicas":7}}`, "", `{"spec":{}}`, render.Merge},
		"an atomic map of another's": {"/spec/template/spec/nodeSelector", `{"spec":{"template":{"spec":{"nodeSelector":{"a":"1"}}}}}`, `{"spec":{"template":{"spec":{"nodeSelector":{"b":"2"}}}}}`, `{"f:spec":{"f:template":{"f:spec":{"f:nodeSelector":{}}}}}`, `{"spec":{"template":{"spec":{}}}}`, render.Merge},
		"an empty map of another's":  {"/spec/strategy", `{"spec":{"strategy":{"a":"1"}}}`, `{"metadata":{"managedFields":[{"manager":"vdo-operator","fieldsV1":{"f:spec":{"f:strategy":{"f:a":{}}}}}]},"spec":{"strategy":{"a":"1"}}}`, `{"f:spec":{"f:strategy":{}}}`, `{"spec":{"strategy":{"a":"1"}}}`, render.Merge},
		"an item of a list, by name": {"/spec/template/spec/containers/0/resources", containers, `{"spec":{"template":{"spec":{"containers":[{"name":"b"},{"name":"a","resources":{"requests":{"cpu":"9"}}}]}}}}`, `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{"f:resources":{"f:requests":{"f:cpu":{}}}}}}}}}`, `{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}}}`, render.Merge},
		"data that are replaced":     {"/metadata/annotations/x", `{"metadata":{"annotations":{"x":"1","y":"1"}}}`, `{"metadata":{"annotations":{"x":"2"}}}`, "", `{"metadata":{"annotations":{"x":"2","y":"1"}}}`, render.Replace},
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := drift.Parse(ignore("Deployment", c.path))
			require.NoError(t, err)
			desired := deployment(t, c.desired)
			before := desired.DeepCopy()
			got := rules.Omit(render.Object{Unstructured: desired, Apply: c.apply}, live(t, c.live, c.theirs), ours)
			require.Equal(t, deployment(t, c.applied).Object, got.Object)
			require.Equal(t, before, desired, "what was rendered stays")
			require.Equal(t, desired, rules.Omit(render.Object{Unstructured: desired}, nil, ours), "what is not there is made whole")
		})
	}
}

func TestARuleIsForTheObjectsThatItNames(t *testing.T) {
	for name, c := range map[string]struct {
		rule v1alpha1.DriftIgnore
		is   bool
	}{
		"kind":                         {v1alpha1.DriftIgnore{Kind: "Deployment"}, true},
		"another kind":                 {v1alpha1.DriftIgnore{Kind: "DaemonSet"}, false},
		"driver":                       {v1alpha1.DriftIgnore{Kind: "Deployment", Driver: "csi"}, true},
		"another driver":               {v1alpha1.DriftIgnore{Kind: "Deployment", Driver: "cpi"}, false},
		"its name":                     {v1alpha1.DriftIgnore{Kind: "Deployment", Namespace: "vmware-system-csi", Name: "vsphere-csi-controller"}, true},
		"another name":                 {v1alpha1.DriftIgnore{Kind: "Deployment", Name: "x"}, false},
		"beside one that is not valid": {v1alpha1.DriftIgnore{Kind: "Deployment"}, true},
		"another namespace":            {v1alpha1.DriftIgnore{Kind: "Deployment", Namespace: "x"}, false},
	} {
		bad := name == "beside one that is not valid"
		if c.rule.Paths = []string{"/spec/replicas"}; bad {
			c.rule.Paths = []string{"/spec/selector", "/spec/replicas"}
		}
		rules, err := drift.Parse(&v1alpha1.DriftPolicy{Ignore: []v1alpha1.DriftIgnore{c.rule}})
		require.Equal(t, bad, err != nil)
		got := rules.Omit(render.Object{Unstructured: deployment(t, `{"spec":{"replicas":3}}`), Driver: "csi"}, live(t, `{"spec":{"replicas":7}}`, `{"f:spec":{"f:replicas":{}}}`), ours)
		_, exists, _ := unstructured.NestedFieldNoCopy(got.Object, "spec", "replicas")
		require.Equal(t, c.is, !exists, name)
	}
}

func TestWhoChangedAFieldIsNamed(t *testing.T) {
	o := live(t, `{}`, `{"f:spec":{"f:replicas":{}},"f:metadata":{"f:annotations":{"f:example.com/x":{}}}}`)
	require.Equal(t, "scaler", drift.Changer(o, ours, [][]string{{"spec", "replicas"}}))
	require.Equal(t, "scaler", drift.Changer(o, ours, [][]string{{"metadata", "annotations", "example.com/x"}}))
	o = live(t, `{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}`,
		`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{"f:image":{}}}}}}}`)
	image := strings.Split("spec.template.spec.containers.0.image", ".")
	require.Equal(t, "scaler", drift.Changer(o, ours, [][]string{image}))
	require.Empty(t, drift.Changer(o, ours, [][]string{{"spec", "paused"}}), "that is ours")
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestWhoChangesAnObjectEachTimeIsLeftAloneForAWhile(t *testing.T) {
	var counter drift.RepairCounter
	key := inventory.Key{Kind: "Deployment", Name: "a"}
	now := noon
	var entry v1alpha1.DriftStatus
	for i := range drift.Repairs {
		var contested bool
		now = now.Add(time.Second)
		entry, contested = drift.Repaired(v1alpha1.DriftStatus{}, counter.Repaired(key, now), now)
		require.Equal(t, i == drift.Repairs-1, contested)
	}
	require.True(t, drift.Paused(entry, now))
	require.False(t, drift.Paused(entry, now.Add(-time.Hour)), "the clock was ahead")
	require.True(t, entry.Until.Equal(&metav1.Time{Time: now.Add(drift.Pause)}))
	for range 3 {
		now = entry.Until.Time
		require.False(t, drift.Paused(entry, now), "it is tried again")
		var contested bool
		entry, contested = drift.Repaired(entry, (&drift.RepairCounter{}).Repaired(key, now), now) // an operator that starts anew
		require.True(t, contested)
		require.Equal(t, drift.Pause, entry.Until.Sub(now))
	}
}

// Changes by hand, now and then, are no contest.
func TestRepairsThatLieApartAreNoContest(t *testing.T) {
	var counter drift.RepairCounter
	for i := range 100 {
		_, contested := drift.Repaired(v1alpha1.DriftStatus{}, counter.Repaired(inventory.Key{Name: "a"}, noon.Add(time.Duration(i*int(drift.Window)/(drift.Repairs-1)))), noon)
		require.False(t, contested)
	}
}
