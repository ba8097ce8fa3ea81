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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

func TestNamespacesThatMayHaveHosts(t *testing.T) {
	for text, want := range map[string]bool{
		"{}": true, "{names: [x]}": false, "{names: []}": false, "{nameMatches: (}": false, "{nameMatches: ^t}": true,
		"{names: [t], nameMatches: ^x$}": false, "{hasLabels: [{name: team, value: blue}]}": false,
		"{hasLabels: [{name: team}]}": true, "{hasLabels: [{name: team, value: red}], names: [x, t]}": true, "": false,
	} {
		var policy deployPolicy
		require.NoError(t, yaml.UnmarshalStrict([]byte("hostClaimNamespaces: "+text), &policy))
		accepts, err := policy.accepts("t", map[string]string{"team": "red"})
		require.Equal(t, want, accepts, text)
		require.Equal(t, strings.Contains(text, "("), err != nil, text)
	}
	for text, want := range map[string][]string{
		"": {}, "other": {"other"}, "other, t": {"other", "t"}, "t\n": {"t"}, "t x": {"t x"},
	} {
		h := &choose.Host{BareMetalHost: hostIn("h", "", "OK")}
		require.Nil(t, allowed(h))
		h.Annotations = map[string]string{airship.AnnotationAllowedNamespaces: text}
		require.Equal(t, want, allowed(h), text)
	}
}

// The shipped policies: only the operator allocates hosts, and it writes nothing else on them. It writes in no
// namespace but those that it created, though it had the rights, and no one else makes one look like those.
func TestOnlyTheOperatorAllocatesHosts(t *testing.T) {
	w, _ := start(t)
	w.hosts("a")
	require.NoError(t, cluster.SIPOperator.Bind(t.Context(), w, servicesRole, w.ns))
	cfg := rest.CopyConfig(cluster.Config(t))
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "owner", Groups: []string{"system:authenticated"}}
	owner := must.Have(client.NewWithWatch(cfg, client.Options{Scheme: w.Scheme(), Mapper: w.RESTMapper()}))(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.ns}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"metal3.io"}, Resources: []string{"baremetalhosts"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces", "namespaces/status"}, Verbs: []string{"create", "patch"}},
	}}
	require.NoError(t, errors.Join(w.Create(t.Context(), role), w.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: w.ns},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "owner"}},
	})))
	writes := func(who client.Client, patch string) func() error {
		return func() error { return who.Patch(t.Context(), w.bare("a"), merge(patch), client.DryRunAll) }
	}
	notes := func(who client.Client, key, value string) func() error {
		return writes(who, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
	}
	labels := func(who client.Client, key string) func() error {
		return writes(who, `{"metadata":{"labels":{"`+key+`":"x"}}}`)
	}
	creates := func(who client.Client, o client.Object) func() error {
		return func() error {
			o.SetResourceVersion("") // which an answer to a dry run has
			return who.Create(t.Context(), o, client.DryRunAll)
		}
	}
	deletes := func(o client.Object) func() error {
		return func() error { return w.own.Delete(t.Context(), o, client.DryRunAll) }
	}
	here := metav1.ObjectMeta{Namespace: w.ns, Name: "x"}
	former, foreign := &corev1.ConfigMap{ObjectMeta: here}, &corev1.ConfigMap{ObjectMeta: here}
	former.Name, former.Labels = "former", (&pass{key: types.NamespacedName{Namespace: w.ns, Name: "t"}}).labels()
	require.NoError(t, errors.Join(w.Create(t.Context(), former), w.Create(t.Context(), foreign)))
	rights := &rbacv1.RoleBinding{ObjectMeta: here}
	rights.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: servicesRole}
	hosts := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.metal}}
	plain := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-x"}}
	ofServices := plain.DeepCopy()
	ofServices.Annotations = map[string]string{airship.AnnotationServicesOf: w.ns + "/t"}
	const allocates, others = "only the operator for SIPClusters allocates hosts", "the operator for SIPClusters writes "
	const namespaces, elsewhere = "creates and deletes namespaces of services only", "in the namespaces that it created only"
	const marks = "only the operator for SIPClusters writes"
	for name, c := range map[string]struct {
		try     func() error
		refused string // "": it is allowed
	}{
		"the owner claims":                {notes(owner, airship.AnnotationClaim, "x"), allocates},
		"the owner labels":                {labels(owner, airship.LabelClusterName), allocates},
		"the owner permits":               {notes(owner, airship.AnnotationAllowedNamespaces, "x"), ""},
		"the owner changes the rest":      {writes(owner, `{"spec":{"online":false}}`), ""},
		"an administrator repairs":        {labels(w, airship.LabelClusterName), ""},
		"an administrator adopts":         {notes(w, airship.AnnotationClaim, "Worker t/x"), ""},
		"an administrator misspells":      {notes(w, airship.AnnotationClaim, "worker t/x"), "reads ROLE NAMESPACE/NAME"},
		"the operator claims":             {notes(w.own, airship.AnnotationClaim, "x"), ""},
		"the operator labels":             {labels(w.own, airship.LabelNodeType), ""},
		"the operator reboots":            {notes(w.own, annotationReboot, "x"), ""},
		"the operator remembers a reboot": {notes(w.own, annotationRebootedFor, "x"), ""},
		"the operator powers":             {writes(w.own, `{"spec":{"online":false}}`), ""},
		"the operator provisions":         {writes(w.own, `{"spec":{"image":{"url":"x"}}}`), others},
		"the operator takes another BMC":  {writes(w.own, `{"spec":{"bmc":{"disableCertificateVerification":true}}}`), others},
		"the operator writes other notes": {notes(w.own, "inspect.metal3.io", "x"), others},
		"the operator writes a label":     {labels(w.own, "flavor"), others},

		"the operator creates a namespace of services":      {creates(w.own, ofServices), ""},
		"the operator creates another namespace":            {creates(w.own, plain), namespaces},
		"the operator deletes another namespace":            {deletes(hosts), namespaces},
		"the operator gives itself rights elsewhere":        {creates(w.own, rights), elsewhere},
		"the operator writes elsewhere":                     {creates(w.own, &corev1.Secret{ObjectMeta: here}), elsewhere},
		"the operator deletes elsewhere":                    {deletes(foreign), elsewhere},
		"the operator deletes what an earlier version made": {deletes(former), ""},
		"somebody else creates a namespace":                 {creates(owner, plain), ""},
		"somebody else claims a namespace of services":      {creates(owner, ofServices), marks},
		"somebody else claims one through its status": {func() error {
			claim := merge(`{"metadata":{"annotations":{"` + airship.AnnotationServicesOf + `":"a/b"}}}`)
			return owner.Status().Patch(t.Context(), hosts.DeepCopy(), claim, client.DryRunAll)
		}, marks},
	} {
		require.Eventually(t, func() bool { // each API server reads policies with a delay
			err := c.try()
			return (err == nil) == (c.refused == "") && (err == nil || strings.Contains(err.Error(), c.refused))
		}, time.Minute, 20*time.Millisecond, name)
	}
	access.refused.Forget() // what this test had refused

	action := &airship.HostAction{ObjectMeta: w.requested("x"), Spec: airship.HostActionSpec{
		Cluster: "t", Host: airship.HostReference{Namespace: w.metal, Name: "a"}, Action: airship.PowerOff,
	}}
	for _, by := range []map[string]string{nil, {airship.AnnotationRequestedBy: "alice"}} {
		action.Annotations = by
		require.ErrorContains(t, w.Create(t.Context(), action, client.DryRunAll), "has to be your own user name")
	}
}

// act makes a HostAction and has the operator reconcile it.
func (w *world) act(r *Reconciler, name, host string, what airship.PowerAction) action {
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
	w.reports(name, fmt.Sprintf(`{"poweredOn":%t}`, on))
}

func (w *world) provisioning(state string, hosts ...string) {
	for _, name := range hosts {
		w.reports(name, fmt.Sprintf(`{"provisioning":{"state":%q}}`, state))
	}
}

// rebooted plays Metal3, which reboots provisioned hosts only: it powers them off first.
func (w *world) rebooted(name string) {
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
	w.says(r, "t", airship.ReasonUnableToApplyLabels, "change BareMetalHost "+w.metal+"/aa: ", true)
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
