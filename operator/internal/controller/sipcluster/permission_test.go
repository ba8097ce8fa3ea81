package sipcluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// A namespace gets hosts that their owner permits to it, and no others.
func TestAllocationIsDeniedByDefault(t *testing.T) {
	w := start(t)
	w.hosts("a")
	w.sip("t", `nodes: {Worker: {FLAVOR, count: {active: 1}}}`)
	r := w.operator(w.own)
	label := func(value string) map[string]any { return map[string]any{"name": "team", "value": value} }
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"team":"red"}}}`))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
	require.NoError(t, w.Patch(t.Context(), namespace, patch))
	for _, c := range []struct {
		policy  map[string]any // of HostDeployPolicy's hostClaimNamespaces
		accepts bool
	}{
		{nil, false},
		{map[string]any{"names": []any{"x"}}, false},
		{map[string]any{"names": []any{}}, false},
		{map[string]any{"nameMatches": "("}, false},
		{map[string]any{"nameMatches": "^" + w.ns[:3]}, true},
		{map[string]any{"names": []any{w.ns}, "nameMatches": "^x$"}, false},
		{map[string]any{"hasLabels": []any{label("blue")}}, false},
		{map[string]any{"hasLabels": []any{label("")}}, true},
		{map[string]any{"hasLabels": []any{label("red")}, "names": []any{"x", w.ns}}, true},
		{map[string]any{}, true},
	} {
		w.permit(c.policy)
		w.settle(r, "t")
		if want := map[bool]int{true: 1}[c.accepts]; len(w.claimed("t")) != want {
			t.Errorf("%v: %d hosts, want %d: %s", c.policy, len(w.claimed("t")), want, w.ready("t").Message)
		}
		if !c.accepts {
			w.says("t", airship.ReasonUnschedulable, string(choose.ReasonNamespace), false)
		}
	}
}

// Hosts that an earlier version allocated stay where they are: their claims have no UID, and
// nobody had permitted them, since that was the default.
func TestAnUpgradeKeepsAllocatedHosts(t *testing.T) {
	w := start(t)
	s, r := w.served()
	w.note("a", airship.AnnotationClaim, "Worker "+w.ns+"/t")
	w.note("b", airship.AnnotationClaim, "Worker "+w.ns+"/t")
	w.permit(nil)
	before := w.objects()
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
	require.Equal(t, []string{"a", "b"}, names(w.labelled("t")))
	require.Equal(t, before, w.objects())
	for _, name := range []string{"a", "b"} {
		notes := w.bare(name).GetAnnotations()
		require.Equal(t, "Worker "+w.ns+"/t "+string(s.UID), notes[airship.AnnotationClaim])
		require.Equal(t, w.ns, notes[airship.AnnotationAllowedNamespaces])
	}

	// A claim that this SIPCluster never had is of an earlier one of its name.
	w.hosts("old")
	w.note("old", airship.AnnotationClaim, "Worker "+w.ns+"/t")
	w.change("t", replace(balanced, "active: 2", "active: 3"))
	w.settle(r, "t")
	require.Equal(t, int32(2), w.get("t").Status.Held)
	require.Equal(t, "Worker "+w.ns+"/t", w.bare("old").GetAnnotations()[airship.AnnotationClaim])
}

// The shipped policy: only the operator allocates, and it writes nothing else on hosts.
func TestOnlyTheOperatorAllocatesHosts(t *testing.T) {
	w := start(t)
	w.hosts("a")
	cfg := rest.CopyConfig(cluster.Config(t))
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "owner", Groups: []string{"system:authenticated"}}
	owner, err := client.NewWithWatch(cfg, client.Options{Scheme: w.Scheme(), Mapper: w.RESTMapper()})
	require.NoError(t, err)
	meta := metav1.ObjectMeta{Namespace: w.metal, Name: "owner"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"metal3.io"}, Resources: []string{"baremetalhosts"}, Verbs: []string{"*"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "owner"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "owner"}},
	}
	require.NoError(t, errors.Join(w.Create(t.Context(), role), w.Create(t.Context(), binding)))
	annotate := func(key string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{key: "x"}) }
	}
	label := func(key string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, "x", "metadata", "labels", key)
		}
	}
	field := func(path ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, false, path...) }
	}
	for name, c := range map[string]struct {
		who     client.Client
		edit    func(*unstructured.Unstructured)
		refused bool
	}{
		"the owner claims":                {owner, annotate(airship.AnnotationClaim), true},
		"the owner labels":                {owner, label(airship.LabelClusterName), true},
		"the owner permits":               {owner, annotate(airship.AnnotationAllowedNamespaces), false},
		"the owner has one adopted":       {owner, annotate(airship.AnnotationAdopt), false},
		"the owner changes the rest":      {owner, field("spec", "online"), false},
		"an administrator repairs":        {w, label(airship.LabelClusterName), false},
		"the operator claims":             {w.own, annotate(airship.AnnotationClaim), false},
		"the operator labels":             {w.own, label(airship.LabelNodeType), false},
		"the operator reboots":            {w.own, annotate(annotationReboot), false},
		"the operator powers":             {w.own, field("spec", "online"), false},
		"the operator provisions":         {w.own, field("spec", "image"), true},
		"the operator takes another BMC":  {w.own, field("spec", "bmc", "disableCertificateVerification"), true},
		"the operator writes other notes": {w.own, annotate("inspect.metal3.io"), true},
		"the operator writes a label":     {w.own, label("flavor"), true},
	} {
		try := func() error {
			o := w.bare("a")
			before := o.DeepCopy()
			c.edit(o)
			return c.who.Patch(t.Context(), o, client.MergeFrom(before), client.DryRunAll)
		}
		if !c.refused {
			require.NoError(t, try(), name)
			continue
		}
		// Each API server reads policies with a delay.
		refused := func() bool { return apierrors.IsForbidden(try()) }
		require.Eventually(t, refused, time.Minute, 50*time.Millisecond, name)
		require.True(t, strings.Contains(try().Error(), "the operator for SIPClusters"), name)
	}
	access.refused.Forget() // what this test had refused

	action := func(user string) error {
		o := &airship.HostAction{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "x"}}
		o.Spec = airship.HostActionSpec{
			Cluster: "t", Host: airship.HostReference{Namespace: w.metal, Name: "a"}, Action: airship.PowerOff,
		}
		o.Annotations = map[string]string{airship.AnnotationRequestedBy: user}
		return w.Create(t.Context(), o, client.DryRunAll)
	}
	require.ErrorContains(t, action("alice"), "has to be your own user name")
}
