package cluster_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
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
	t.Helper()
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
	t.Helper()
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
	require.NoError(t, k.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "states"}, Data: map[string]string{"stale": "1"}}))
	desired := configMap(ns, "states", map[string]any{"fresh": "1"})
	live, _, err := c.Read(ctx, []inventory.ID{plan.IDOf(desired)})
	require.NoError(t, err)
	s := step(desired, plan.Replace)
	s.Strategy = render.Replace
	must.Have(c.Apply(ctx, s, live[s.Key]))(t)
	data := must.Have(c.ConfigMap(ctx, types.NamespacedName{Namespace: ns, Name: "states"}))(t)
	require.Equal(t, map[string]string{"fresh": "1"}, data)
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
		t.Helper()
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
		t.Helper()
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
