package cluster_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m) }

var ctx = context.Background()

// start returns the cluster as the operator's account has it, an administrator's client, and a
// namespace like the operator's own.
func start(t *testing.T) (*edge.Cluster, client.WithWatch, string) {
	t.Helper()
	cfg := cluster.Config(t)
	admin, err := client.NewWithWatch(cfg, client.Options{Scheme: clientgoscheme.Scheme})
	require.NoError(t, err)
	account, refused := cluster.Operator.Within(cfg)
	t.Cleanup(func() { refused.None(t) })
	c, err := client.NewWithWatch(account, client.Options{Scheme: clientgoscheme.Scheme})
	require.NoError(t, err)
	versions, err := discovery.NewDiscoveryClientForConfig(account)
	require.NoError(t, err)
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
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: clientgoscheme.Scheme})
	require.NoError(t, err)
	return &edge.Cluster{Client: c, Reader: c}, c, cluster.Namespace(t, cfg)
}

func configMap(ns, name string, data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": ns, "name": name}, "data": data}}
}

func step(o *unstructured.Unstructured, action plan.Action) plan.Step {
	return plan.Step{Action: action, ID: plan.IDOf(o), Object: o, Strategy: render.Merge,
		UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion()}
}

func TestADeleteHoldsOnlyForWhatWasDecidedOn(t *testing.T) {
	c, k, ns := start(t)
	o := configMap(ns, "x", map[string]any{"a": "1"})
	made, err := c.Apply(ctx, step(o, plan.Create), nil)
	require.NoError(t, err)
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

	made, err = c.Apply(ctx, step(configMap(ns, "x", nil), plan.Create), nil)
	require.NoError(t, err)
	anew := step(made, plan.Recreate)
	anew.Adopts = true
	require.NoError(t, c.Delete(ctx, anew))
	require.True(t, apierrors.IsNotFound(k.Get(ctx, client.ObjectKeyFromObject(made), &cm)), "what is made anew to be taken over waits for nothing that it owns")
}

func TestReplacingTakesKeysOfOthersAway(t *testing.T) {
	c, k, ns := start(t)
	require.NoError(t, k.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "states"}, Data: map[string]string{"stale": "1"}}))
	wanted := configMap(ns, "states", map[string]any{"fresh": "1"})
	live, _, err := c.Read(ctx, []inventory.ID{plan.IDOf(wanted)})
	require.NoError(t, err)
	s := step(wanted, plan.Replace)
	s.Strategy = render.Replace
	_, err = c.Apply(ctx, s, live[s.Key])
	require.NoError(t, err)
	data, err := c.ConfigMap(ctx, types.NamespacedName{Namespace: ns, Name: "states"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"fresh": "1"}, data)
}

func TestTakingOverRemovesFieldsOfTheToolThatWroteThem(t *testing.T) {
	c, k, ns := unbounded(t)
	require.NoError(t, k.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "svc"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"old": "1"}, Ports: []corev1.ServicePort{{Port: 1}}}}, client.FieldOwner("kubectl-client-side-apply")))
	wanted := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"namespace": ns, "name": "svc"},
		"spec": map[string]any{"selector": map[string]any{"new": "1"}, "ports": []any{map[string]any{"port": int64(1), "protocol": "TCP"}}}}}
	live, _, err := c.Read(ctx, []inventory.ID{plan.IDOf(wanted)})
	require.NoError(t, err)
	s := step(wanted, plan.Change)
	s.Adopts = true
	_, err = c.Apply(ctx, s, live[s.Key])
	require.NoError(t, err)
	var svc corev1.Service
	require.NoError(t, k.Get(ctx, types.NamespacedName{Namespace: ns, Name: "svc"}, &svc))
	require.Equal(t, map[string]string{"new": "1"}, svc.Spec.Selector)
}

func TestADryRunChangesNothingAndKnowsWhatCannotBeTriedYet(t *testing.T) {
	c, k, ns := unbounded(t)
	there, unplaced := configMap(ns, "dry", nil), configMap("namespace-to-come", "dry", nil)
	bad := configMap(ns, "Not_A_Name", nil)
	kind := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "to.come/v1", "kind": "Later", "metadata": map[string]any{"name": "x"}}}
	var objects []render.Object
	for _, o := range []*unstructured.Unstructured{there, unplaced, bad, kind} {
		objects = append(objects, render.Object{Unstructured: o, Apply: render.Merge})
	}
	out, err := c.DryRun(ctx, objects, nil)
	require.NoError(t, err)
	require.NotNil(t, out[plan.IDOf(there).Key].Object)
	for _, o := range []*unstructured.Unstructured{unplaced, kind} {
		require.Equal(t, plan.Outcome{}, out[plan.IDOf(o).Key], o.GetName())
	}
	require.Equal(t, fault.Incompatible, fault.ReasonOf(out[plan.IDOf(bad).Key].Err))
	require.True(t, apierrors.IsNotFound(k.Get(ctx, types.NamespacedName{Namespace: ns, Name: "dry"}, &corev1.ConfigMap{})))
}

func TestTheInventoryIsKeptAndAForeignOneIsNotWrittenOver(t *testing.T) {
	c, k, ns := start(t)
	of := types.NamespacedName{Namespace: ns, Name: "site"}
	proof := inventory.Proof{Key: []byte("key")}
	none, err := c.LoadInventory(ctx, of, proof)
	require.NoError(t, err)
	require.Zero(t, none.Len())
	inv := inventory.Of(inventory.Entry{ID: inventory.ID{Key: inventory.Key{Kind: "Secret", Name: "s"}, Version: "v1"}, Driver: matrix.CSI})
	for n := range int64(2) { // made, then changed
		require.NoError(t, c.SaveInventory(ctx, of, inv, inventory.Sealer{Key: proof.Key, Serial: n + 1}))
	}
	again, err := c.LoadInventory(ctx, of, proof)
	require.NoError(t, err)
	require.True(t, again.Equal(inv))
	cm := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: inventory.VDOConfigs.ConfigMap("site")}}
	require.NoError(t, k.Get(ctx, client.ObjectKeyFromObject(&cm), &cm))
	require.Empty(t, cm.OwnerReferences, "the garbage collector must not take it before its objects are removed")
	cm.Data = map[string]string{"other": "x"}
	require.NoError(t, k.Update(ctx, &cm))
	again, err = c.LoadInventory(ctx, of, proof)
	require.NoError(t, err)
	require.True(t, again.Equal(inv), "the second copy has it")
	second := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: inventory.VDOConfigs.Copy("site")}}
	require.NoError(t, k.Get(ctx, client.ObjectKeyFromObject(&second), &second))
	second.Data = map[string]string{"other": "x"}
	require.NoError(t, k.Update(ctx, &second))
	_, err = c.LoadInventory(ctx, of, proof)
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	require.NoError(t, k.Delete(ctx, &second))
	_, err = c.LoadInventory(ctx, of, proof)
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	require.NoError(t, c.DeleteInventory(ctx, of))
	require.NoError(t, c.DeleteInventory(ctx, of))
}

// An operator that was paused while another one led does not put back what it knew: the record
// stays as the other one has sealed it.
func TestARecordThatIsAsNewIsNotWrittenOver(t *testing.T) {
	c, _, ns := start(t)
	of, key := types.NamespacedName{Namespace: ns, Name: "site"}, []byte("key")
	object := inventory.Entry{ID: inventory.ID{Key: inventory.Key{Kind: "Secret", Name: "s"}, Version: "v1"}, Driver: matrix.CSI}
	require.NoError(t, c.SaveInventory(ctx, of, inventory.Of(object), inventory.Sealer{Key: key, Serial: 7}))
	for _, serial := range []int64{6, 7} {
		require.Equal(t, fault.Conflict, fault.ReasonOf(c.SaveInventory(ctx, of, inventory.Inventory{}, inventory.Sealer{Key: key, Serial: serial})))
	}
	loaded, err := c.LoadInventory(ctx, of, inventory.Proof{Key: key})
	require.NoError(t, err)
	require.True(t, loaded.Sealed && loaded.Whole)
	require.Equal(t, int64(7), loaded.Serial)
	require.Equal(t, 1, loaded.Len())
}

// Nor does it make again what the other one has removed with the VDOConfig; one copy that was not
// there before is made.
func TestARecordThatWasRemovedIsNotMadeAgain(t *testing.T) {
	c, k, ns := start(t)
	of, key := types.NamespacedName{Namespace: ns, Name: "site"}, []byte("key")
	names := inventory.VDOConfigs
	require.NoError(t, c.SaveInventory(ctx, of, inventory.Inventory{}, inventory.Sealer{Key: key, Serial: 1}))
	require.NoError(t, k.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: names.Copy("site")}}))
	one, err := c.LoadInventory(ctx, of, inventory.Proof{Key: key})
	require.NoError(t, err)
	require.Equal(t, []string{ns + "/" + names.ConfigMap("site")}, slices.Collect(maps.Keys(one.There)))
	require.NoError(t, c.SaveInventory(ctx, of, one.Inventory, inventory.Sealer{Key: key, Serial: 2, Known: one.There}))
	both, err := c.LoadInventory(ctx, of, inventory.Proof{Key: key})
	require.NoError(t, err)
	require.ElementsMatch(t, names.Both(ns, "site"), slices.Collect(maps.Keys(both.There)))

	require.NoError(t, c.DeleteInventory(ctx, of))
	err = c.SaveInventory(ctx, of, both.Inventory, inventory.Sealer{Key: key, Serial: 3, Known: both.There})
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
	require.ErrorContains(t, err, "it changed meanwhile: it was removed")
	none, err := c.LoadInventory(ctx, of, inventory.Proof{Key: key})
	require.NoError(t, err)
	require.Empty(t, none.There)
}

// Whose record it is that came since it was read, the seal says; what was read is written over.
func TestARecordOfTheNextOfTheNameIsNotWrittenOver(t *testing.T) {
	c, _, ns := start(t)
	of, key := types.NamespacedName{Namespace: ns, Name: "site"}, []byte("key")
	object := inventory.Entry{ID: inventory.ID{Key: inventory.Key{Kind: "Secret", Name: "s"}, Version: "v1"}, Driver: matrix.CSI}
	first, second := inventory.Proof{Key: key, UID: "first"}, inventory.Proof{Key: key, UID: "second"}
	load := func(by inventory.Proof) inventory.Loaded {
		loaded, err := c.LoadInventory(ctx, of, by)
		require.NoError(t, err)
		return loaded
	}
	require.NoError(t, c.SaveInventory(ctx, of, inventory.Of(object), load(first).Next(key, "first", inventory.Anchor{})))
	paused := load(first)
	require.NoError(t, c.SaveInventory(ctx, of, inventory.Inventory{}, load(second).Next(key, "second", inventory.Anchor{})), "what was read")
	require.Equal(t, fault.Conflict, fault.ReasonOf(c.SaveInventory(ctx, of, paused.Inventory, paused.Next(key, "first", inventory.Anchor{}))))
	require.True(t, load(second).Sealed)
	require.Zero(t, load(second).Len())
}

// One of the Secrets that hold a key may be put back from a backup: what the status knows says
// which of two it is.
func TestOfTwoKeysTheOneThatIsKnownCounts(t *testing.T) {
	c, k, ns := start(t)
	names := []string{"seal", "seal-copy"}
	there := func(known string) ([]byte, []string, error) {
		return c.KeyThere(ctx, ns, names, inventory.KnownKeys{Own: known})
	}
	key, missing, err := there("")
	require.NoError(t, err)
	require.Nil(t, key)
	require.Equal(t, names, missing)
	require.NoError(t, c.KeepKey(ctx, ns, missing[:1], []byte("before")))
	key, missing, err = there("")
	require.NoError(t, err)
	require.Equal(t, "before", string(key))
	require.Equal(t, names[1:], missing)
	require.NoError(t, c.KeepKey(ctx, ns, missing, []byte("now")))
	for _, known := range []string{"before", "now"} {
		key, missing, err = there(inventory.KeyID([]byte(known)))
		require.NoError(t, err)
		require.Equal(t, known, string(key))
		require.Empty(t, missing)
	}
	_, _, err = there("")
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
	require.ErrorContains(t, err, "seal and seal-copy in "+ns)
	require.NotContains(t, err.Error(), "before")
	require.ErrorContains(t, err, "no status knows either")

	before, now := inventory.KeyID([]byte("before")), inventory.KeyID([]byte("now"))
	others := func(own string, ids []string, failed error) ([]byte, []string, error) {
		return c.KeyThere(ctx, ns, names, inventory.KnownKeys{Own: own, Kind: "Thing", Others: func(context.Context) ([]string, error) { return ids, failed }})
	}
	key, _, err = others("", []string{"", "another", before, before}, nil)
	require.NoError(t, err)
	require.Equal(t, "before", string(key), "that of others")
	key, _, err = others(now, []string{before}, errors.New("not asked"))
	require.NoError(t, err)
	require.Equal(t, "now", string(key), "its own comes first")
	_, _, err = others("", []string{before, now}, nil)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
	require.ErrorContains(t, err, "each is known to the status of another Thing")
	_, _, err = others("", nil, errors.New("list: no"))
	require.EqualError(t, err, "list: no")

	require.NoError(t, k.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "seal"}}))
	key, _, err = there("")
	require.NoError(t, err)
	require.Equal(t, "now", string(key))
}

// The record of a VDOConfig copy-x had the name of the second copy of x. It is found there, where
// the status shows that there was one, and written under a name of its own.
func TestARecordUnderItsEarlierNameIsFound(t *testing.T) {
	c, k, ns := start(t)
	of, key := types.NamespacedName{Namespace: ns, Name: "copy-x"}, []byte("key")
	by := inventory.Sealer{Key: key, Serial: 1, Owner: ns + "/vdo-inventory-copy-x"}
	inv := inventory.Of(inventory.Entry{ID: plan.IDOf(configMap(ns, "x", nil)), Driver: matrix.CSI})
	for _, name := range []string{"vdo-inventory-copy-x", "vdo-inventory-copy-copy-x"} {
		require.NoError(t, k.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: by.Data(inv)}))
	}
	proof := inventory.Proof{Key: key, Anchor: inventory.Anchor{Serial: 1, KeyID: inventory.KeyID(key)}}
	none, err := c.LoadInventory(ctx, of, proof)
	require.NoError(t, err)
	require.False(t, none.Found, "it has installed nothing: they are another one's")
	proof.Earlier = true
	was, err := c.LoadInventory(ctx, of, proof)
	require.NoError(t, err)
	require.True(t, was.Sealed && was.Inventory.Equal(inv) && !was.Whole)
	require.NoError(t, c.SaveInventory(ctx, of, was.Inventory, was.Next(key, "", proof.Anchor)))
	is, err := c.LoadInventory(ctx, of, proof)
	require.NoError(t, err)
	require.True(t, is.Whole && is.Sealed && is.Inventory.Equal(inv))
	require.EqualValues(t, 2, is.Serial)
	require.ElementsMatch(t, inventory.VDOConfigs.Both(ns, of.Name), slices.Collect(maps.Keys(is.There)))
}

// A record that somebody made immutable, with other data or with its own, is written all the same.
func TestAnImmutableRecordIsMadeAnew(t *testing.T) {
	c, k, ns := start(t)
	of, key := types.NamespacedName{Namespace: ns, Name: "site"}, []byte("key")
	require.NoError(t, c.SaveInventory(ctx, of, inventory.Inventory{}, inventory.Sealer{Key: key, Serial: 1}))
	names := inventory.VDOConfigs
	for name, data := range map[string]string{names.ConfigMap("site"): "{", names.Copy("site"): ""} {
		var cm corev1.ConfigMap
		require.NoError(t, k.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, &cm))
		if cm.Immutable = new(true); data != "" {
			cm.Data = map[string]string{"inventory.json": data}
		}
		require.NoError(t, k.Update(ctx, &cm))
	}
	was, err := c.LoadInventory(ctx, of, inventory.Proof{Key: key})
	require.NoError(t, err)
	require.NoError(t, c.SaveInventory(ctx, of, was.Inventory, inventory.Sealer{Key: key, Serial: 2, Known: was.There}))
	both, err := c.LoadInventory(ctx, of, inventory.Proof{Key: key})
	require.NoError(t, err)
	require.EqualValues(t, 2, both.Serial)
	require.True(t, both.Whole)
	require.ElementsMatch(t, names.Both(ns, "site"), slices.Collect(maps.Keys(both.There)))
}

// What another operator writes between the look at a record and its deletion stays.
func TestARecordThatIsWrittenMeanwhileIsNotDeleted(t *testing.T) {
	c, k, ns := start(t)
	of := types.NamespacedName{Namespace: ns, Name: "site"}
	require.NoError(t, c.SaveInventory(ctx, of, inventory.Inventory{}, inventory.Sealer{}))
	key := types.NamespacedName{Namespace: ns, Name: "key"}
	require.NoError(t, c.CreateSecret(ctx, key, map[string][]byte{"k": []byte("one")}))
	cut := edge.Cluster{Reader: c.Reader, Versions: c.Versions}
	cut.Client = interceptor.NewClient(k, interceptor.Funcs{Delete: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		other := o.DeepCopyObject().(client.Object) //nolint:forcetypeassert // as it was
		other.SetAnnotations(map[string]string{"written": "meanwhile"})
		if err := to.Update(ctx, other); err != nil {
			return err
		}
		return to.Delete(ctx, o, opts...)
	}})
	require.Equal(t, fault.Conflict, fault.ReasonOf(cut.DeleteInventory(ctx, of)))
	require.Equal(t, fault.Conflict, fault.ReasonOf(cut.DeleteSecret(ctx, key)))
	require.NoError(t, k.Get(ctx, key, &corev1.Secret{}))
	require.NoError(t, c.DeleteInventory(ctx, of))
	require.NoError(t, c.DeleteSecret(ctx, key))
	require.True(t, apierrors.IsNotFound(k.Get(ctx, key, &corev1.Secret{})))
}

// The copy of a revision's bundle belongs to the revision too, so that it does not go with
// its DriverBundle; another bundle's does not.
func TestARevisionOwnsTheCopyOfItsBundle(t *testing.T) {
	c, k, ns := start(t)
	digest := "sha256:" + strings.Repeat("a", 64)
	copies := map[string]string{"mine": strings.Repeat("a", 63), "other": strings.Repeat("b", 63)}
	for name, label := range copies {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{revision.LabelCopy: label}}, Immutable: ptr.To(true)}
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "vdo.vmware.com/v1alpha1", Kind: "DriverBundle", Name: "site", UID: "u", Controller: ptr.To(true)}}
		require.NoError(t, k.Create(ctx, cm))
	}
	of := types.NamespacedName{Namespace: ns, Name: "site"}
	owners := func(name string) (all []string) {
		var cm corev1.ConfigMap
		require.NoError(t, k.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, &cm))
		for _, r := range cm.OwnerReferences {
			all = append(all, r.Kind+" "+r.Name)
		}
		return all
	}
	for range 2 { // also of a pass that was interrupted
		require.NoError(t, c.KeepRevision(ctx, of, revision.Manifest{APIVersion: revision.APIVersion, Name: "r1", Revision: revision.Revision{Bundle: "mirror.site/b@" + digest}, Seal: "s"}))
		require.Equal(t, []string{"DriverBundle site", "ConfigMap " + revision.ConfigMapName("site", "r1")}, owners("mine"))
	}
	require.Equal(t, []string{"DriverBundle site"}, owners("other"))
}

func TestVolumesOfTheDriverAreCountedMigratedOnesToo(t *testing.T) {
	c, k, ns := start(t)
	before, _, err := c.Volumes(ctx)
	require.NoError(t, err)
	for name, source := range map[string]corev1.PersistentVolumeSource{
		"ours":     {CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.vsphere.vmware.com", VolumeHandle: "h"}},
		"migrated": {VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] x"}},
		"other":    {CSI: &corev1.CSIPersistentVolumeSource{Driver: "other", VolumeHandle: "h"}},
	} {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + ns}, Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}, PersistentVolumeSource: source}}
		require.NoError(t, k.Create(ctx, pv))
		t.Cleanup(func() { _ = k.Delete(ctx, pv) })
	}
	volumes, attachments, err := c.Volumes(ctx)
	require.NoError(t, err)
	require.Equal(t, before+2, volumes)
	require.Zero(t, attachments)
}

func TestAnswersOfTheServerAreToldApart(t *testing.T) {
	c, k, ns := unbounded(t)
	gr := schema.GroupResource{Resource: "configmaps"}
	for name, answer := range map[string]struct {
		err    error
		reason fault.Reason
	}{
		"403":   {apierrors.NewForbidden(gr, "x", errors.New("no")), fault.Forbidden},
		"quota": {apierrors.NewForbidden(gr, "x", errors.New("exceeded quota: q")), fault.Refused},
		"401":   {apierrors.NewUnauthorized("no"), fault.Unauthorized},
		"409":   {apierrors.NewConflict(gr, "x", errors.New("changed")), fault.Conflict},
		"422":   {apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "x", nil), fault.Incompatible},
		"429":   {apierrors.NewTooManyRequests("later", 1), fault.Throttled},
		"500":   {apierrors.NewInternalError(errors.New("boom")), fault.Unreachable},
		"reset": {&net.OpError{Op: "read", Err: errors.New("connection reset")}, fault.Unreachable},
		"ended": {context.Canceled, fault.Interrupted},
	} {
		failing := edge.Cluster{Reader: c.Reader, Versions: c.Versions}
		failing.Client = interceptor.NewClient(k, interceptor.Funcs{
			Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				return answer.err
			}})
		_, err := failing.Apply(ctx, step(configMap(ns, "x", nil), plan.Create), nil)
		require.Equal(t, answer.reason, fault.ReasonOf(err), name)
		require.Contains(t, err.Error(), "create ConfigMap "+ns+"/x", name)
	}
}

// A record that is to be made anew, and that somebody's finalizer keeps, is named with it: it is
// not known whose they are, and nothing is written until they are off.
func TestARecordThatIsKeptByAFinalizerIsTold(t *testing.T) {
	c, k, ns := start(t)
	of, key := types.NamespacedName{Namespace: ns, Name: "site"}, []byte("key")
	require.NoError(t, c.SaveInventory(ctx, of, inventory.Inventory{}, inventory.Sealer{Key: key, Serial: 1}))
	name := types.NamespacedName{Namespace: ns, Name: inventory.VDOConfigs.ConfigMap("site")}
	var cm corev1.ConfigMap
	require.NoError(t, k.Get(ctx, name, &cm))
	cm.Immutable, cm.Finalizers = new(true), []string{"site.example/keep"}
	require.NoError(t, k.Update(ctx, &cm))
	for serial := int64(2); serial < 4; serial++ {
		err := c.SaveInventory(ctx, of, inventory.Inventory{}, inventory.Sealer{Key: key, Serial: serial})
		require.Equal(t, fault.Conflict, fault.ReasonOf(err))
		require.ErrorContains(t, err, "the one that was deleted is kept by its finalizers site.example/keep")
		require.Contains(t, fault.HintOf(err), "kubectl patch configmap -n "+ns+" "+name.Name+" --type=json")
	}
	require.NoError(t, k.Get(ctx, name, &cm))
	cm.Finalizers = nil
	require.NoError(t, k.Update(ctx, &cm))
	require.NoError(t, c.SaveInventory(ctx, of, inventory.Inventory{}, inventory.Sealer{Key: key, Serial: 5}))
}
