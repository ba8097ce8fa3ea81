package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

func TestMain(m *testing.M) { cluster.Main(m) }

var ctx = context.Background()

// start returns the cluster as the operator's account has it, an administrator's client, and a
// namespace like the operator's own.
func start(t *testing.T) (*edge.Cluster, client.WithWatch, string) {
	cfg := cluster.Config(t)
	admin := must.Have(client.NewWithWatch(cfg, client.Options{Scheme: clientgoscheme.Scheme}))(t)
	account, refused := cluster.Operator.Within(cfg)
	t.Cleanup(func() { refused.None(t) })
	c := must.Have(client.NewWithWatch(account, client.Options{Scheme: clientgoscheme.Scheme}))(t)
	versions := must.Have(discovery.NewDiscoveryClientForConfig(account))(t)
	ns := cluster.Namespace(t, cfg)
	require.NoError(t, cluster.Operator.Grant(t.Context(), admin))
	require.NoError(t, cluster.Operator.GrantIn(t.Context(), admin, ns))
	return &edge.Cluster{Client: c, Reader: c, Versions: versions}, admin, ns
}

// unbounded is start for what is about kinds and places that no driver has: the operator is an
// administrator.
func unbounded(t *testing.T) (*edge.Cluster, client.WithWatch, string) {
	cfg := cluster.Config(t)
	c := must.Have(client.NewWithWatch(cfg, client.Options{Scheme: clientgoscheme.Scheme}))(t)
	return &edge.Cluster{Client: c, Reader: c}, c, cluster.Namespace(t, cfg)
}

func configMap(ns, name string, data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": ns, "name": name}, "data": data}}
}

func step(o *unstructured.Unstructured, action plan.Action) plan.Step {
	return plan.Step{Action: action, ID: plan.IDOf(o), Object: o, Strategy: render.Merge,
		Precondition: plan.Precondition{UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion()}}
}

func TestADeleteHoldsOnlyForWhatWasDecidedOn(t *testing.T) {
	c, k, ns := start(t)
	o := configMap(ns, "x", map[string]any{"a": "1"})
	made := must.Have(c.Apply(ctx, step(o, plan.Create), nil))(t)
	stale := step(made, plan.Prune)
	var cm corev1.ConfigMap
	require.NoError(t, k.Get(ctx, client.ObjectKeyFromObject(made), &cm))
	cm.Data["b"] = "2"
	require.NoError(t, k.Update(ctx, &cm))
	require.Equal(t, fault.Conflict, fault.ReasonOf(c.Delete(ctx, stale)), "somebody changed it")
	stale.ResourceVersion, stale.UID = cm.ResourceVersion, "another"
	require.Equal(t, fault.Conflict, fault.ReasonOf(c.Delete(ctx, stale)), "somebody made it anew")
	stale.UID = string(cm.UID)
	require.NoError(t, c.Delete(ctx, stale))
	live, _, err := c.Read(ctx, []inventory.ID{stale.ID})
	require.NoError(t, err)
	require.False(t, live[stale.Key].GetDeletionTimestamp().IsZero(), "it is there until what it owns is gone")
	require.NoError(t, k.Get(ctx, client.ObjectKeyFromObject(made), &cm))
	cm.Finalizers = nil // as the garbage collector does
	require.NoError(t, k.Update(ctx, &cm))
	require.NoError(t, c.Delete(ctx, stale), "what is gone is gone")

	made = must.Have(c.Apply(ctx, step(configMap(ns, "x", nil), plan.Create), nil))(t)
	recreated := step(made, plan.Recreate)
	recreated.Adopts = true
	require.NoError(t, c.Delete(ctx, recreated))
	require.True(t, apierrors.IsNotFound(k.Get(ctx, client.ObjectKeyFromObject(made), &cm)), "what is made anew to be taken over waits for nothing that it owns")
}

func TestReplacingTakesKeysOfOthersAway(t *testing.T) {
	c, k, ns := start(t)
	require.NoError(t, k.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "states", Annotations: map[string]string{"theirs": "x"}},
		Data:       map[string]string{"stale": "1", "kept": "1"},
	}))
	desired := configMap(ns, "states", map[string]any{"fresh": "1", "kept": "2"})
	live, _, err := c.Read(ctx, []inventory.ID{plan.IDOf(desired)})
	require.NoError(t, err)
	s := step(desired, plan.Replace)
	s.Strategy = render.Replace
	put := must.Have(c.Apply(ctx, s, live[s.Key]))(t)
	require.Equal(t, desired.Object["data"], put.Object["data"])
	require.Equal(t, "x", put.GetAnnotations()["theirs"])
	_, err = c.Apply(ctx, s, live[s.Key])
	require.Equal(t, fault.Conflict, fault.ReasonOf(err), "replaced only if nobody changed it meanwhile")
}

func TestTakingOverRemovesFieldsOfTheToolsThatWroteThem(t *testing.T) {
	c, k, ns := unbounded(t)
	applied := func(by, key string) error {
		o := configMap(ns, "taken", map[string]any{key: "1"})
		return k.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(by))
	}
	for name, write := range map[string]func() error{
		"kubectl apply": func() error {
			return k.Create(ctx, configMap(ns, "taken", map[string]any{"old": "1"}), client.FieldOwner("kubectl-client-side-apply"))
		},
		"kubectl apply --server-side and kubectl edit": func() error {
			edit := client.RawPatch(types.MergePatchType, []byte(`{"data":{"edited":"1"}}`))
			return errors.Join(applied("kubectl", "old"), k.Patch(ctx, configMap(ns, "taken", nil), edit, client.FieldOwner("kubectl")))
		},
		"two tools": func() error { return errors.Join(applied("a", "old"), applied("b", "older")) },
	} {
		require.NoError(t, write(), name)
		desired := configMap(ns, "taken", map[string]any{"new": "1"})
		live, _, err := c.Read(ctx, []inventory.ID{plan.IDOf(desired)})
		require.NoError(t, err)
		s := step(desired, plan.Change)
		s.Adopts = true
		must.Have(c.Apply(ctx, s, live[s.Key]))(t)
		var cm corev1.ConfigMap
		require.NoError(t, k.Get(ctx, types.NamespacedName{Namespace: ns, Name: "taken"}, &cm))
		require.Equal(t, map[string]string{"new": "1"}, cm.Data, name)
		require.NoError(t, k.Delete(ctx, &cm))
	}
}

func TestADryRunChangesNothingAndKnowsWhatCannotBeTriedYet(t *testing.T) {
	c, k, ns := unbounded(t)
	exists, unplaced := configMap(ns, "dry", nil), configMap("namespace-to-come", "dry", nil)
	bad := configMap(ns, "Not_A_Name", nil)
	kind := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "to.come/v1", "kind": "Later", "metadata": map[string]any{"name": "x"}}}
	var objects []render.Object
	for _, o := range []*unstructured.Unstructured{exists, unplaced, bad, kind} {
		objects = append(objects, render.Object{Unstructured: o, Apply: render.Merge})
	}
	out := must.Have(c.DryRun(ctx, objects, nil))(t)
	require.NotNil(t, out[plan.IDOf(exists).Key].Object)
	for _, o := range []*unstructured.Unstructured{unplaced, kind} {
		require.Equal(t, plan.Outcome{}, out[plan.IDOf(o).Key], o.GetName())
	}
	require.Equal(t, fault.Incompatible, fault.ReasonOf(out[plan.IDOf(bad).Key].Err))
	require.True(t, apierrors.IsNotFound(k.Get(ctx, types.NamespacedName{Namespace: ns, Name: "dry"}, &corev1.ConfigMap{})))
}

func TestAClassKeepsItsParametersAndWhatOthersSet(t *testing.T) {
	c, k, _ := unbounded(t)
	gold := func(policy string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": map[string]any{"name": "gold"},
			"provisioner": drivers.CSIDriver, "parameters": map[string]any{"storagepolicyname": policy}}}
	}
	made := must.Have(c.Apply(ctx, step(gold("Gold"), plan.Create), nil))(t)
	t.Cleanup(func() { require.NoError(t, k.Delete(ctx, made)) })
	edit := client.RawPatch(types.MergePatchType, []byte(`{"mountOptions": ["discard"]}`))
	require.NoError(t, k.Patch(ctx, made, edit, client.FieldOwner("kubectl-edit")))
	key := plan.IDOf(made).Key
	try := func(o *unstructured.Unstructured) plan.Outcome {
		live := plan.Live{key: made}
		return must.Have(c.DryRun(ctx, []render.Object{{Unstructured: o, Apply: render.Merge}}, live))(t)[key]
	}
	require.Empty(t, plan.Diff(made, try(gold("Gold")).Object))
	err := try(gold("Silver")).Err
	require.ErrorContains(t, err, "StorageClass gold")
	require.ErrorContains(t, err, "parameters")
	require.Contains(t, fault.HintOf(err), "another name")
}

// site is a reader of a site with volumes: a page of each list, or the same page for ever.
type site struct {
	client.Reader

	volumes, attachments []runtime.Object
	endless              bool
}

func (s site) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if s.endless {
		list.SetContinue("more")
	}
	if _, ok := list.(*corev1.PersistentVolumeList); ok {
		return meta.SetList(list, s.volumes)
	}
	return meta.SetList(list, s.attachments)
}

func TestVolumesOfTheDriverAreCountedMigratedOnesTooUpToABound(t *testing.T) {
	pv := func(s corev1.PersistentVolumeSource) runtime.Object {
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: s}}
	}
	csi := func(driver string) runtime.Object {
		return pv(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver}})
	}
	attached := func(by string) runtime.Object {
		return &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: by}}
	}
	s := site{
		volumes: []runtime.Object{
			csi("csi.vsphere.vmware.com"), csi("other"),
			pv(corev1.PersistentVolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{}}),
		},
		attachments: []runtime.Object{attached("csi.vsphere.vmware.com"), attached("other")},
	}
	volumes, attachments, err := (&edge.Cluster{Reader: s}).Volumes(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{2, 1}, []int{volumes, attachments})
	s.endless = true
	volumes, attachments, err = (&edge.Cluster{Reader: s}).Volumes(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{edge.MaxVolumes, edge.MaxVolumes}, []int{volumes, attachments})
}

func TestAnswersOfTheServerAreToldApart(t *testing.T) {
	c, k, ns := unbounded(t)
	gr := schema.GroupResource{Resource: "configmaps"}
	denied := apierrors.NewForbidden(gr, "x", errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: n"))
	denied.ErrStatus.Reason, denied.ErrStatus.Code = metav1.StatusReasonInvalid, 422
	for name, answer := range map[string]struct {
		err    error
		reason fault.Reason
	}{
		"403":    {apierrors.NewForbidden(gr, "x", errors.New("no")), fault.Forbidden},
		"quota":  {apierrors.NewForbidden(gr, "x", errors.New("exceeded quota: q")), fault.Refused},
		"policy": {denied, fault.Refused},
		"401":    {apierrors.NewUnauthorized("no"), fault.Unauthorized},
		"409":    {apierrors.NewConflict(gr, "x", errors.New("changed")), fault.Conflict},
		"422":    {apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "x", nil), fault.Incompatible},
		"port": {apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "x", field.ErrorList{
			field.Invalid(field.NewPath("spec", "ports").Index(0).Child("nodePort"), 30001, "allocated")}), fault.Incompatible},
		"429":     {apierrors.NewTooManyRequests("later", 1), fault.Throttled},
		"500":     {apierrors.NewInternalError(errors.New("boom")), fault.Unreachable},
		"reset":   {&net.OpError{Op: "read", Err: errors.New("connection reset")}, fault.Unreachable},
		"ended":   {context.Canceled, fault.Interrupted},
		"no kind": {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "X"}}, fault.Internal},
	} {
		failing := edge.Cluster{Reader: c.Reader, Versions: c.Versions}
		failing.Client = interceptor.NewClient(k, interceptor.Funcs{
			Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				return answer.err
			}})
		_, err := failing.Apply(ctx, step(configMap(ns, "x", nil), plan.Create), nil)
		require.Equal(t, answer.reason, fault.ReasonOf(err), name)
		require.Contains(t, err.Error(), "create ConfigMap "+ns+"/x", name)
		require.Equal(t, name == "port", strings.Contains(fault.HintOf(err), "choose another nodePort"), name)
		require.Equal(t, name == "policy", strings.Contains(fault.HintOf(err), "admission policy"), name)
		if name == "403" { // the same of each object in a namespace that is gone
			_, a := failing.Apply(ctx, step(configMap("gone", "a", nil), plan.Create), nil)
			_, b := failing.Apply(ctx, step(configMap("gone", "b", nil), plan.Create), nil)
			require.EqualError(t, fault.Distinct(fault.Join(a, b)), "write to the cluster: namespace gone is not there")
		}
	}
}

// kinds are those of an API server that answers for none.
type kinds struct {
	meta.RESTMapper
	answer error
}

func (k kinds) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, k.answer
}

func TestAKindIsMissingOnlyIfTheServerSaysSo(t *testing.T) {
	away := apiutil.ErrResourceDiscoveryFailed{{Group: "g", Version: "v1"}: apierrors.NewServiceUnavailable("later")}
	lacks := &meta.NoKindMatchError{}
	for answer, reason := range map[error]fault.Reason{nil: "", lacks: "", &away: fault.Unreachable} {
		c := edge.Cluster{Client: fake.NewClientBuilder().WithRESTMapper(kinds{answer: answer}).Build()}
		served, err := c.Serves(schema.GroupKind{Group: "g", Kind: "K"})
		require.Equal(t, answer == nil, served)
		require.Equal(t, reason, fault.ReasonOf(err))
	}
}

func TestTheInventoryIsKept(t *testing.T) {
	c, k, ns := start(t)
	of := types.NamespacedName{Namespace: ns, Name: "site"}
	inv := inventory.Of(inventory.Entry{ID: inventory.ID{Key: inventory.Key{Kind: "Secret", Name: "s"}, Version: "v1"}, Driver: matrix.CSI})
	load := func() edge.Loaded {
		was := must.Have(c.LoadInventory(ctx, of))(t)
		return was
	}
	save := func(inv inventory.Inventory, was edge.Loaded) (edge.Loaded, fault.Reason) {
		now, err := c.SaveInventory(ctx, of, inv, was)
		return now, fault.ReasonOf(err)
	}
	none := load()
	require.False(t, none.Exists)
	made, why := save(inv, none)
	require.Empty(t, why)
	_, why = save(inv, none)
	require.Equal(t, fault.Conflict, why, "another one has made it")
	paused := load()
	require.True(t, paused.Exists && paused.Equal(inv))
	made, why = save(inventory.Inventory{}, made)
	require.Empty(t, why)
	_, why = save(inv, paused)
	require.Equal(t, fault.Conflict, why, "another one has written it")
	require.Zero(t, load().Len())

	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: inventory.VDOConfigs.ConfigMap("site")}}
	require.NoError(t, k.Get(ctx, client.ObjectKeyFromObject(cm), cm))
	require.Empty(t, cm.OwnerReferences, "the garbage collector must not take it before its objects are removed")
	require.NoError(t, c.DeleteInventory(ctx, of))
	require.NoError(t, c.DeleteInventory(ctx, of))
	_, why = save(inv, made)
	require.Equal(t, fault.Conflict, why, "another one has removed it")
	require.False(t, load().Exists)
}

// An earlier program kept the record twice, and beside each a seal: the copy goes with the record.
func TestTheRecordOfAnEarlierProgramIsTakenOver(t *testing.T) {
	c, k, ns := start(t)
	of, names := types.NamespacedName{Namespace: ns, Name: "site"}, inventory.VDOConfigs
	inv := inventory.Of(inventory.Entry{ID: inventory.ID{Key: inventory.Key{Kind: "Secret", Name: "s"}, Version: "v1"}, Driver: matrix.CSI})
	data := map[string]string{"seal": "{}", "unsealed": "[]", inventory.DataKey: strings.Replace(string(inv.Marshal()), `"driver"`, `"unsealed":true,"driver"`, 1)}
	for _, name := range []string{names.Copy("site"), names.ConfigMap("site")} {
		require.NoError(t, k.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: data}))
	}
	was := must.Have(c.LoadInventory(ctx, of))(t)
	require.True(t, was.Exists && was.Equal(inv))
	must.Have(c.SaveInventory(ctx, of, inv, was))(t)
	is := must.Have(c.LoadInventory(ctx, of))(t)
	require.True(t, is.Exists && is.Equal(inv))
	require.NoError(t, c.DeleteInventory(ctx, of))
	require.True(t, apierrors.IsNotFound(k.Get(ctx, types.NamespacedName{Namespace: ns, Name: names.Copy("site")}, &corev1.ConfigMap{})))
}

func TestTheFirstSecretWithAKeyCounts(t *testing.T) {
	c, _, ns := start(t)
	key := func() string {
		k, _, err := c.Key(ctx, ns, "key", "key-copy")
		require.NoError(t, err)
		return string(k)
	}
	require.Empty(t, key())
	for _, name := range []string{"key-copy", "key"} {
		require.NoError(t, c.CreateSecret(ctx, types.NamespacedName{Namespace: ns, Name: name}, map[string][]byte{edge.KeptKey: []byte(name)}))
		require.Equal(t, name, key())
	}
}

// lists counts the lists that a cluster's Reader is asked for.
type lists struct {
	client.Reader
	n atomic.Int64
}

func (l *lists) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	l.n.Add(1)
	return l.Reader.List(ctx, list, opts...)
}

func viewed(t *testing.T, c *edge.Cluster, watching client.WithWatch) (with *edge.Cluster, requested *lists) {
	t.Helper()
	requested = &lists{Reader: c.Reader}
	with = &edge.Cluster{Client: c.Client, Reader: requested, Versions: c.Versions, View: edge.NewView(watching)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = with.View.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return with, requested
}

// crashing is a container that falls over, and leaves that message.
func crashing(name, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: message}}}
}

// populate makes nodes, and a driver's pods on them with two containers.
func populate(t *testing.T, k client.Client, statuses ...corev1.ContainerStatus) {
	labels := map[string]string{"name": "vsphere-cloud-controller-manager"}
	made := []client.Object{&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vsphere-cloud-controller-manager"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x.example/cpi/manager:v1.33.1"}}}}}}}
	for _, name := range []string{"view-2", "view-0", "view-1"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/os": "linux"}, Annotations: map[string]string{"a": "b"}},
			Spec: corev1.NodeSpec{ProviderID: "vsphere://" + name, Taints: []corev1.Taint{{Key: assess.TaintUninitialized, Effect: corev1.TaintEffectNoSchedule}}}}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: labels},
			Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "x"}, {Name: "d", Image: "x"}}}}
		c := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: "other.example", NodeID: name}, {Name: drivers.CSIDriver, NodeID: name, TopologyKeys: []string{"zone"}}}}}
		made = append(made, n, p, c)
	}
	for _, o := range made {
		require.NoError(t, k.Create(ctx, o))
		t.Cleanup(func() { _ = k.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
		switch o := o.(type) {
		case *corev1.Node:
			o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "posting"}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}}
			o.Status.Images = []corev1.ContainerImage{{Names: []string{"x"}}}
			require.NoError(t, k.Status().Update(ctx, o))
		case *corev1.Pod:
			o.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
				ContainerStatuses: statuses}
			require.NoError(t, k.Status().Update(ctx, o))
		}
	}
}

func TestTheViewShowsWhatListingShows(t *testing.T) {
	c, k, _ := start(t)
	populate(t, k, corev1.ContainerStatus{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, crashing("d", "x509: no"))
	with, requested := viewed(t, c, k)
	same := func() {
		until(t, "the same", func() bool {
			want := must.Have(c.Observe(ctx))(t)
			got := must.Have(with.Observe(ctx))(t)
			got.Events, want.Events = nil, nil
			return asJSON(t, want) == asJSON(t, got)
		})
	}
	same()
	o := must.Have(with.Observe(ctx))(t)
	require.Len(t, o.Nodes, 3)
	require.Len(t, o.Pods, 3)
	require.Equal(t, []string{"zone"}, o.CSINodes[0].Spec.Drivers[0].TopologyKeys)
	require.Equal(t, "x509: no", o.Pods[0].Status.ContainerStatuses[0].LastTerminationState.Terminated.Message)
	before := requested.n.Load()
	must.Have(with.Observe(ctx))(t)
	require.Equal(t, int64(1), requested.n.Load()-before, "events of a workload that is not rolled out, and nothing else")
	listed := must.Have(with.ObserveListed(ctx))(t)
	require.Greater(t, requested.n.Load()-before, int64(4), "nodes, CSINodes, pods and events are listed")
	require.Same(t, o.Nodes[0], listed.Nodes[0], "an unchanged object is kept once")

	var n corev1.Node
	require.NoError(t, k.Get(ctx, client.ObjectKey{Name: "view-1"}, &n))
	n.Spec.Taints = nil
	require.NoError(t, k.Update(ctx, &n))
	require.NoError(t, k.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "view-2"}}, client.GracePeriodSeconds(0)))
	require.NoError(t, k.Delete(ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "view-0"}}))
	same()
}

// until waits for a condition. Unlike those of require.Eventually it is called by the test.
func until(t *testing.T, what string, is func() bool) {
	for end := time.Now().Add(3 * time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		require.True(t, time.Now().Before(end), what)
	}
}

// wire is between a View and the API server: it can break, slow down and replace watches of nodes.
type wire struct {
	mu     sync.Mutex
	broken error           // the answer to every list and watch, nil for the API server's
	pause  time.Duration   // before a list of nodes
	next   watch.Interface // the next watch of nodes, nil for the API server's
	lists  int             // of nodes
	last   watch.Interface // of nodes
}

func (w *wire) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *wire) listed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lists
}

func (w *wire) client(k client.WithWatch) client.WithWatch {
	return interceptor.NewClient(k, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			_, nodes := list.(*corev1.NodeList)
			w.mu.Lock()
			broken, pause := w.broken, w.pause
			if nodes {
				w.lists++
			}
			w.mu.Unlock()
			if broken != nil {
				return broken
			}
			if nodes {
				time.Sleep(pause)
			}
			return c.List(ctx, list, opts...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			_, nodes := list.(*corev1.NodeList)
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.broken != nil {
				return nil, w.broken
			}
			if !nodes {
				return c.Watch(ctx, list, opts...)
			}
			var err error
			if w.last, w.next = w.next, nil; w.last == nil {
				w.last, err = c.Watch(ctx, list, opts...)
			}
			return w.last, err
		},
	})
}

// listless tells whether a look listed nothing but events.
func listless(t *testing.T, with *edge.Cluster, requested *lists) bool {
	before := requested.n.Load()
	must.Have(with.Observe(ctx))(t)
	return requested.n.Load() == before+1
}

func TestASlowListIsWaitedFor(t *testing.T) {
	c, k, _ := start(t)
	populate(t, k)
	first := watch.NewFake()
	w := &wire{pause: time.Second, next: first}
	with, requested := viewed(t, c, w.client(k))
	until(t, "it is asked", func() bool { return w.listed() > 0 })
	require.True(t, listless(t, with, requested))
	require.Len(t, nodesOf(t, with), 3)

	require.NoError(t, k.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "view-2"}}))
	expired := apierrors.NewResourceExpired("too old").ErrStatus
	first.Error(&expired)
	until(t, "the watch's end is known", first.IsStopped)
	require.True(t, listless(t, with, requested))
	require.Len(t, nodesOf(t, with), 2)
}

func TestWhatCannotBeWatchedIsListed(t *testing.T) {
	c, k, _ := start(t)
	populate(t, k)
	w := &wire{broken: apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))}
	with, requested := viewed(t, c, w.client(k))
	o := must.Have(with.Observe(ctx))(t)
	require.Len(t, o.Nodes, 3, "listed")
	require.Len(t, o.Pods, 3)
	require.False(t, listless(t, with, requested))
	w.set(func() { w.broken = nil })
	until(t, "the right was given", func() bool { return listless(t, with, requested) })

	w.set(func() { w.broken = syscall.ECONNREFUSED; w.last.Stop() })
	require.NoError(t, k.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "view-2"}}))
	begun := time.Now()
	require.Len(t, nodesOf(t, with), 2, "between two watches")
	require.Less(t, time.Since(begun), 10*time.Second, "it does not wait for the watch")
	require.False(t, listless(t, with, requested))
	w.set(func() { w.broken = nil })
	until(t, "it is watched again", func() bool { return listless(t, with, requested) })
	require.Len(t, nodesOf(t, with), 2)
}

func nodesOf(t *testing.T, c *edge.Cluster) []*corev1.Node {
	o := must.Have(c.Observe(ctx))(t)
	return o.Nodes
}

func asJSON(t *testing.T, o assess.Observed) string {
	data := must.Have(json.Marshal(o))(t)
	return string(data)
}
