package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
)

func TestAllocationIsDeniedByDefault(t *testing.T) {
	label := func(value string) map[string]any { return map[string]any{"name": "team", "value": value} }
	for _, c := range []struct {
		annotation *string
		policy     map[string]any // HostDeployPolicy's hostClaimNamespaces; nil for no policy
		accepts    bool
	}{
		{nil, nil, false},
		{new("other"), map[string]any{}, false},
		{new(""), map[string]any{}, false},
		{new("other, t"), nil, true},
		{new("t\n"), nil, true},
		{new("t x"), nil, false},
		{nil, map[string]any{"names": []any{"x"}}, false},
		{nil, map[string]any{"names": []any{}}, false},
		{nil, map[string]any{"nameMatches": "("}, false},
		{nil, map[string]any{"nameMatches": "^t"}, true},
		{nil, map[string]any{"names": []any{"t"}, "nameMatches": "^x$"}, false},
		{nil, map[string]any{"hasLabels": []any{label("blue")}}, false},
		{nil, map[string]any{"hasLabels": []any{label("")}}, true},
		{nil, map[string]any{"hasLabels": []any{label("red")}, "names": []any{"x", "t"}}, true},
		{nil, map[string]any{}, true},
	} {
		scheme := runtime.NewScheme()
		require.NoError(t, errors.Join(corev1.AddToScheme(scheme), choose.AddToScheme("v1beta1")(scheme)))
		kind := schema.GroupVersionKind{Group: "metal3.io", Version: "v1beta1", Kind: "HostDeployPolicy"}
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
		meta := metav1.ObjectMeta{Name: "t", Labels: map[string]string{"team": "red"}}
		objects := []client.Object{&corev1.Namespace{ObjectMeta: meta}}
		if c.policy != nil {
			policy := hostDeployPolicy("m", c.policy)
			policy.SetGroupVersionKind(kind)
			objects = append(objects, policy)
		}
		mapper := testrestmapper.TestOnlyStaticRESTMapper(scheme)
		reader := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).Build()
		key := types.NamespacedName{Namespace: "t", Name: "s"}
		p := &pass{Reconciler: &Reconciler{Client: reader, Reader: reader}, key: key}
		permits, err := p.permits(t.Context())
		require.NoError(t, err)
		p.sip, p.choice.Roles = &airship.SIPCluster{}, []choose.Role{{Missing: airship.MissingHosts{Count: 1}}}
		require.Equal(t, c.policy["nameMatches"] == "(", strings.Contains(p.judge(nil).message,
			"read HostDeployPolicy m/tenants: spec.hostClaimNamespaces.nameMatches: error parsing regexp: missing closing ): `(`"))
		h := &choose.Host{BareMetalHost: hostIn("h", "", "OK")}
		if c.annotation != nil {
			h.Annotations = map[string]string{airship.AnnotationAllowedNamespaces: *c.annotation}
		}
		require.Equal(t, c.accepts, permits(h), "%+v", c)
		h = &choose.Host{BareMetalHost: hostIn("h", "", "OK")}
		h.Namespace = "n"
		require.False(t, permits(h), "a policy is for the hosts beside it")
	}
}

// The shipped policy: only the operator allocates, and it writes nothing else on hosts.
func TestOnlyTheOperatorAllocatesHosts(t *testing.T) {
	w, _ := start(t)
	w.hosts("a")
	cfg := rest.CopyConfig(cluster.Config(t))
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "owner", Groups: []string{"system:authenticated"}}
	owner, err := client.NewWithWatch(cfg, client.Options{Scheme: w.Scheme(), Mapper: w.RESTMapper()})
	require.NoError(t, err)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.ns}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"metal3.io"}, Resources: []string{"baremetalhosts"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces/status"}, Verbs: []string{"patch"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: w.ns},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "owner"}},
	}
	require.NoError(t, errors.Join(w.Create(t.Context(), role), w.Create(t.Context(), binding)))
	annotate := func(key string) string { return `{"metadata":{"annotations":{"` + key + `":"x"}}}` }
	label := func(key string) string { return `{"metadata":{"labels":{"` + key + `":"x"}}}` }
	for name, c := range map[string]struct {
		who     client.Client
		patch   string
		refused bool
	}{
		"the owner claims":                {owner, annotate(airship.AnnotationClaim), true},
		"the owner labels":                {owner, label(airship.LabelClusterName), true},
		"the owner permits":               {owner, annotate(airship.AnnotationAllowedNamespaces), false},
		"the owner changes the rest":      {owner, `{"spec":{"online":false}}`, false},
		"an administrator repairs":        {w, label(airship.LabelClusterName), false},
		"an administrator adopts":         {w, replace(annotate(airship.AnnotationClaim), `"x"`, `"Worker t/x"`), false},
		"an administrator misspells":      {w, replace(annotate(airship.AnnotationClaim), `"x"`, `"worker t/x"`), true},
		"the operator claims":             {w.own, annotate(airship.AnnotationClaim), false},
		"the operator labels":             {w.own, label(airship.LabelNodeType), false},
		"the operator reboots":            {w.own, annotate(annotationReboot), false},
		"the operator remembers a reboot": {w.own, annotate(annotationRebootedFor), false},
		"the operator powers":             {w.own, `{"spec":{"online":false}}`, false},
		"the operator provisions":         {w.own, `{"spec":{"image":{"url":"x"}}}`, true},
		"the operator takes another BMC":  {w.own, `{"spec":{"bmc":{"disableCertificateVerification":true}}}`, true},
		"the operator writes other notes": {w.own, annotate("inspect.metal3.io"), true},
		"the operator writes a label":     {w.own, label("flavor"), true},
	} {
		try := func() error {
			patch := client.RawPatch(types.MergePatchType, []byte(c.patch))
			return c.who.Patch(t.Context(), w.bare("a"), patch, client.DryRunAll)
		}
		if !c.refused {
			require.NoError(t, try(), name)
			continue
		}
		// Each API server reads policies with a delay.
		refused := func() bool { return apierrors.IsForbidden(try()) }
		require.Eventually(t, refused, time.Minute, 50*time.Millisecond, name)
		require.ErrorContains(t, try(), "the operator for SIPClusters", name)
	}
	w.confined(owner)
	access.refused.Forget() // what this test had refused

	action := &airship.HostAction{ObjectMeta: w.requested("x"), Spec: airship.HostActionSpec{
		Cluster: "t", Host: airship.HostReference{Namespace: w.metal, Name: "a"}, Action: airship.PowerOff,
	}}
	for _, by := range []map[string]string{nil, {airship.AnnotationRequestedBy: "alice"}} {
		action.Annotations = by
		require.ErrorContains(t, w.Create(t.Context(), action, client.DryRunAll), "has to be your own user name")
	}
}

// confined looks that the operator writes in no namespace but those that it created, though it had the
// rights, and that no one else makes a namespace look like one of those.
func (w *world) confined(owner client.Client) {
	w.Helper()
	require.NoError(w, cluster.SIPOperator.Bind(w.Context(), w, servicesRole, w.ns))
	namespace := func(owned bool) *corev1.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-x"}}
		if owned {
			ns.Annotations = map[string]string{airship.AnnotationServicesOf: w.ns + "/t"}
		}
		return ns
	}
	here := metav1.ObjectMeta{Namespace: w.ns, Name: "x"}
	former := here.DeepCopy()
	former.Name, former.Labels = "former", (&pass{key: types.NamespacedName{Namespace: w.ns, Name: "t"}}).labels()
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: servicesRole}
	rights := &rbacv1.RoleBinding{ObjectMeta: here, RoleRef: role}
	hostsNamespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.metal}}
	const others, elsewhere = "creates and deletes namespaces of services only", "in the namespaces that it created only"
	config, foreign := &corev1.ConfigMap{ObjectMeta: *former}, &corev1.ConfigMap{ObjectMeta: here}
	require.NoError(w, errors.Join(w.Create(w.Context(), config), w.Create(w.Context(), foreign)))
	create := func(c client.Client, o client.Object) func() error {
		return func() error {
			o.SetResourceVersion("") // which an answer to a dry run has
			return c.Create(w.Context(), o, client.DryRunAll)
		}
	}
	remove := func(o client.Object) func() error {
		return func() error { return w.own.Delete(w.Context(), o, client.DryRunAll) }
	}
	claim := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+airship.AnnotationServicesOf+`":"a/b"}}}`))
	inStatus := func() error {
		return owner.Status().Patch(w.Context(), hostsNamespace.DeepCopy(), claim, client.DryRunAll)
	}
	for _, c := range []struct {
		name    string
		try     func() error
		refused string // "": it is allowed
	}{
		{"the operator creates a namespace of services", create(w.own, namespace(true)), ""},
		{"the operator creates another namespace", create(w.own, namespace(false)), others},
		{"the operator deletes another namespace", remove(hostsNamespace), others},
		{"the operator gives itself rights elsewhere", create(w.own, rights), elsewhere},
		{"the operator writes elsewhere", create(w.own, &corev1.Secret{ObjectMeta: here}), elsewhere},
		{"the operator deletes elsewhere", remove(foreign), elsewhere},
		{"the operator deletes what an earlier version made", remove(config), ""},
		{"somebody else creates a namespace", create(owner, namespace(false)), ""},
		{"somebody else claims a namespace of services", create(owner, namespace(true)), "only the operator for SIPClusters writes"},
		{"somebody else claims one through its status", inStatus, "only the operator for SIPClusters writes"},
	} {
		answer := func() bool {
			err := c.try()
			return (err == nil) == (c.refused == "") && (err == nil || strings.Contains(err.Error(), c.refused))
		}
		require.Eventually(w, answer, time.Minute, 20*time.Millisecond, c.name)
	}
}

// act makes a HostAction and has the operator reconcile it.
func (w *world) act(r *Reconciler, name, host string, what airship.PowerAction) action {
	w.Helper()
	o := &airship.HostAction{ObjectMeta: w.requested(name), Spec: airship.HostActionSpec{
		Cluster: "t", Host: airship.HostReference{Namespace: w.metal, Name: host}, Action: what,
	}}
	require.NoError(w, w.Create(w.Context(), o))
	w.actOn(r, o)
	return o
}

// requested is the metadata of a HostAction of the test.
func (w *world) requested(name string) metav1.ObjectMeta {
	by := map[string]string{airship.AnnotationRequestedBy: "admin"}
	return metav1.ObjectMeta{Namespace: w.ns, Name: name, Annotations: by}
}

func (w *world) actOn(r *Reconciler, o action) string {
	w.Helper()
	key := client.ObjectKeyFromObject(o)
	act := reconcile.AsReconciler(r.Client, &actions{r})
	_, err := act.Reconcile(w.Context(), reconcile.Request{NamespacedName: key})
	require.NoError(w, err)
	require.NoError(w, w.Get(w.Context(), key, o))
	ready := meta.FindStatusCondition(o.Status.Conditions, "Ready")
	require.NotNil(w, ready)
	return ready.Reason + ": " + ready.Message
}

func (w *world) powered(name string, on bool) {
	w.Helper()
	w.reports(name, fmt.Sprintf(`{"poweredOn":%t}`, on))
}

func (w *world) provisioning(state string, hosts ...string) {
	w.Helper()
	for _, name := range hosts {
		w.reports(name, fmt.Sprintf(`{"provisioning":{"state":%q}}`, state))
	}
}

// rebooted plays Metal3, which reboots provisioned hosts only: it powers them off first.
func (w *world) rebooted(name string) {
	w.Helper()
	require.True(w, w.bare(name).Provisioned())
	w.powered(name, false)
	w.edit(name, func(o *choose.BareMetalHost) { delete(o.Annotations, annotationReboot) })
}

// Metal3 gets what is requested of a host that the SIPCluster holds, and the status and the events
// say what happened, and by whom.
func TestHostActionsGoThroughMetal3(t *testing.T) {
	w, r := start(t)
	w.settled(r, replace(workers, "standby: 1", "standby: 0"), "a", "b", "c")
	told(r, "")

	require.Contains(t, w.actOn(r, w.act(r, "early", "a", airship.Reboot)), "only (request PowerOff, then PowerOn)")
	require.NotContains(t, w.bare("a").Annotations, annotationReboot)
	w.provisioning("provisioned", "a", "b")
	reboot := w.act(r, "reboot", "a", airship.Reboot)
	require.JSONEq(t, `{"mode":"soft"}`, w.bare("a").Annotations[annotationReboot])
	require.NotNil(t, reboot.Status.RequestedAt)
	require.Equal(t, 2, strings.Count(told(r, "PowerRequested"), "PowerRequested Requested Reboot of host "+w.metal+"/a for SIPCluster "+
		w.ns+`/t, by HostAction reboot, requested by "admin"`), "of the SIPCluster and of the host")
	require.Contains(t, w.actOn(r, reboot), "Requested: waiting for Metal3")
	w.rebooted("a")
	require.Contains(t, w.actOn(r, reboot), "Requested: ", "it is off")
	w.powered("a", true)
	require.Contains(t, w.actOn(r, reboot), "Completed: ")
	require.NotNil(t, reboot.Status.CompletedAt)
	w.actOn(r, reboot)
	require.NotContains(t, w.bare("a").Annotations, annotationReboot, "it is requested once")

	w.use("a", true)
	require.Contains(t, w.actOn(r, w.act(r, "off-in-vain", "a", airship.PowerOff)), "Refused: PowerOff host "+w.metal+
		"/a: Cluster API powers its machines on again (delete its Machine, or request Reboot)")
	require.True(t, w.bare("a").Spec.Online)
	off := w.act(r, "off", "b", airship.PowerOff)
	require.False(t, w.bare("b").Spec.Online)
	require.Contains(t, w.actOn(r, off), "Requested: ")
	w.powered("b", false)
	require.Contains(t, w.actOn(r, off), "Completed: ")
	require.Contains(t, w.actOn(r, w.act(r, "cycle", "b", airship.Reboot)), "b: the host is powered off")
	on := w.act(r, "on", "b", airship.PowerOn)
	require.True(t, w.bare("b").Spec.Online)
	w.edit("b", func(o *choose.BareMetalHost) { o.Spec.Online = false })
	require.Contains(t, w.actOn(r, on), "Refused: PowerOn host "+w.metal+"/b: spec.online of the host was changed")

	forced := w.act(r, "soft", "a", airship.Reboot).DeepCopy()
	forced.ObjectMeta, forced.Spec.Force = w.requested("hard"), true
	require.NoError(t, w.Create(t.Context(), forced))
	w.actOn(r, forced)
	w.act(r, "soft-again", "a", airship.Reboot)
	require.JSONEq(t, `{"mode":"hard"}`, w.bare("a").Annotations[annotationReboot], "a forced reboot stays forced")

	written := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"cluster": "t", "host": map[string]any{"namespace": w.metal, "name": "b"}, "action": "PowerOff", "force": false,
	}}}
	written.SetGroupVersionKind(airship.GroupVersion.WithKind("HostAction"))
	written.SetNamespace(w.ns)
	written.SetName("not-forced")
	written.SetAnnotations(reboot.Annotations)
	require.NoError(t, w.Create(t.Context(), written))

	off.Spec.Action = airship.PowerOn
	require.True(t, apierrors.IsInvalid(w.Update(t.Context(), off)))
	reboot.Annotations[airship.AnnotationRequestedBy] = "bob"
	require.ErrorContains(t, w.Update(t.Context(), reboot), "has to be your own user name")
}

// patching is an operator whose patches go through a hook.
func (w *world) patching(hook func(o client.Object, patch func() error) error) *Reconciler {
	return w.operator(interceptor.NewClient(w.own, interceptor.Funcs{Patch: func(
		ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption,
	) error {
		return hook(o, func() error { return c.Patch(ctx, o, p, opts...) })
	}}))
}

// A free host that a webhook refuses to change, such as Metal3's an old one, holds up nothing else.
func TestAFreeHostThatCannotBeClaimed(t *testing.T) {
	w, r := start(t)
	w.served(r)
	w.hosts("aa", "c")
	r = w.patching(func(o client.Object, patch func() error) error {
		if _, isHost := o.(*choose.BareMetalHost); isHost && o.GetName() == "aa" {
			return apierrors.NewForbidden(schema.GroupResource{}, "aa", errors.New(`webhook "metal3" denied the request: old`))
		}
		return patch()
	})
	w.change("t", active(4))
	w.stands(r, "t", airship.ReasonUnableToApplyLabels, "a", "b", "c")
	w.says("t", airship.ReasonUnableToApplyLabels, "change BareMetalHost "+w.metal+"/aa: ", true)
	require.EqualValues(t, 3, w.get("t").Status.Held)
	require.Len(t, w.backends("t", services.LoadBalancerWorker), 3)
}

// The API server carries the request out, and its answer is lost.
func TestAHostActionRebootsOnce(t *testing.T) {
	w, r := start(t)
	w.settled(r, alone, "a")
	w.provisioning("externally provisioned", "a")
	lost := w.patching(func(o client.Object, patch func() error) error {
		err := patch()
		if _, isHost := o.(*choose.BareMetalHost); isHost && err == nil {
			err = apierrors.NewTimeoutError("the answer is lost", 1)
		}
		return err
	})
	o := w.act(lost, "reboot", "a", airship.Reboot)
	require.Contains(t, o.Status.Conditions[0].Message, "change BareMetalHost "+w.metal+"/a: ")
	require.Contains(t, w.bare("a").Annotations, annotationReboot)
	w.rebooted("a")
	w.act(r, "other", "a", airship.Reboot)
	w.rebooted("a")
	w.powered("a", true)
	told(r, "")
	w.actOn(r, o)
	require.NotContains(t, w.bare("a").Annotations, annotationReboot, "a second reboot")
	require.NotNil(t, o.Status.RequestedAt)
	require.Equal(t, 2, strings.Count(told(r, "PowerRequested"), "PowerRequested Requested Reboot of host"))
	w.provisioning("available", "a")
	require.Contains(t, w.actOn(r, o), "Completed: ")
}

// Neither a reboot that waits nor a PowerOff follows the host to the next tenant. What others requested, or changed,
// stays.
func TestHostActionsEndWithTheHold(t *testing.T) {
	w, r := start(t)
	w.settled(r, replace(alone, "active: 1", "active: 6"), "a", "b", "c", "d", "e", "f")
	w.provisioning("provisioned", "a", "b")
	o := w.act(r, "a", "a", airship.Reboot)
	w.act(r, "b", "b", airship.Reboot)
	w.note("b", annotationReboot, `{"mode":"hard"}`)
	w.note("c", annotationReboot, "")
	w.act(r, "d", "d", airship.PowerOff)
	w.act(r, "e", "e", airship.PowerOff)
	online := func(on bool) func(*choose.BareMetalHost) {
		return func(h *choose.BareMetalHost) { h.Spec.Online = on }
	}
	w.edit("e", online(true))
	w.edit("e", online(false))
	w.edit("f", online(false))
	w.provisioning("available", "a", "b")
	w.settle(r, "t")
	w.change("t", replace(alone, "active: 1", "active: 0"))
	w.stands(r, "t", airship.ReasonSucceeded)
	require.NotContains(t, w.bare("a").Annotations, annotationReboot)
	require.Equal(t, `{"mode":"hard"}`, w.bare("b").Annotations[annotationReboot])
	require.Contains(t, w.bare("c").Annotations, annotationReboot)
	require.True(t, w.bare("d").Spec.Online)
	require.False(t, w.bare("e").Spec.Online)
	require.False(t, w.bare("f").Spec.Online)
	require.Contains(t, w.actOn(r, o), "does not hold this host")
}

// A host of another SIPCluster, of none, or one that does not exist are refused alike, and nothing
// is changed.
func TestHostActionsAreForHostsThatTheClusterHolds(t *testing.T) {
	w, r := start(t)
	w.hosts("a", "b", "c")
	w.host(metal3.Host{Name: "free", State: "provisioned"})
	early := w.act(r, "early", "a", airship.PowerOff)
	w.sip("other", alone)
	w.settle(r, "other")
	w.sip("t", alone)
	w.settle(r, "t")
	require.Equal(t, []string{"a"}, names(w.claimed("other")))
	require.Contains(t, w.actOn(r, early), "/t not found (create another HostAction, for", "it stays refused")
	for _, name := range []string{"a", "free", "missing"} {
		o := w.act(r, name, name, airship.PowerOff)
		require.Contains(t, w.actOn(r, o), "/"+name+": SIPCluster "+w.ns+"/t does not hold this host")
	}
	for _, name := range []string{"a", "free"} {
		require.True(t, w.bare(name).Spec.Online, name)
	}
	w.note("b", choose.AnnotationPaused, "")
	require.Contains(t, w.actOn(r, w.act(r, "paused", "b", airship.PowerOff)), "Refused: ")
	require.True(t, w.bare("b").Spec.Online)
}

// Two operators believe that they lead: between one's decision and its claim, the other claims the host.
func TestAHostIsClaimedOnce(t *testing.T) {
	w, r := start(t)
	w.hosts("a")
	for _, name := range []string{"t", "other"} {
		w.sip(name, alone)
		require.NoError(t, w.pass(r, name)) // the finalizer
	}
	late := w.patching(func(o client.Object, patch func() error) error {
		if _, isHost := o.(*choose.BareMetalHost); isHost {
			require.NoError(t, w.pass(r, "other"))
		}
		return patch()
	})
	require.NoError(t, w.pass(late, "t"))
	require.Equal(t, []string{"a"}, names(w.claimed("other")))
	w.stands(r, "t", airship.ReasonUnschedulable)
}
