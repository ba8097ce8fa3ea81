package vdoconfig_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// somebodys makes an object within the operator's rights that it has never made, and returns
// what a forged record says of it.
func (w *world) somebodys(name string, labels map[string]string) (*corev1.ConfigMap, inventory.Entry) {
	w.t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: name, Labels: labels}}
	w.create(o)
	w.t.Cleanup(func() { require.NoError(w.t, client.IgnoreNotFound(w.Delete(context.Background(), o))) })
	return o, inventory.Entry{ID: inventory.ID{Key: inventory.Key{Kind: "ConfigMap", Namespace: o.Namespace, Name: o.Name}, Version: "v1"},
		UID: string(o.UID), Driver: matrix.CSI, Release: "csi@3.5.1"}
}

// forge adds entries to a record, and changes nothing else of what the ConfigMap has.
func forge(t *testing.T, data map[string]string, entries ...inventory.Entry) map[string]string {
	t.Helper()
	out := map[string]string{}
	for k, text := range data {
		out[k] = text
	}
	for _, e := range entries {
		line, err := json.Marshal(e)
		require.NoError(t, err)
		out[inventory.DataKey] = strings.Replace(out[inventory.DataKey], `"objects":[`, `"objects":[`+string(line)+",", 1)
	}
	return out
}

// dropRecords deletes both copies.
func (w *world) dropRecords(v *v1alpha1.VDOConfig) {
	w.t.Helper()
	for _, name := range recordsOf(v) {
		require.NoError(w.t, w.Delete(context.Background(), get(w, &corev1.ConfigMap{}, w.ns, name)))
	}
}

// refused requires that nothing is changed by the record that is there, and that it is told
// why, and what to do.
func (w *world) refused(v *v1alpha1.VDOConfig, why string) {
	w.t.Helper()
	w.writes = 0
	for range again() {
		w.look(v)
	}
	require.Zero(w.t, w.writes)
	ready := cond(w.t, v, "Ready")
	require.Equal(w.t, "False Untrusted", string(ready.Status)+" "+ready.Reason)
	require.Contains(w.t, ready.Message, why)
	require.Contains(w.t, ready.Message, "ConfigMap "+w.ns+"/vdo-inventory-site")
	require.Contains(w.t, ready.Message, "put back the one that was there")
}

// An entry that somebody adds has nothing deleted. Where the last record is put back, or both
// copies are deleted, all goes on.
func TestAForgedEntryHasNothingDeleted(t *testing.T) {
	w, v := installed(t)
	victim, entry := w.somebodys("victim", nil)
	was, last := w.generations(), w.recorded(v)
	w.putBackData(v, forge(t, last, entry))
	w.refused(v, "somebody else has written it")
	get(w, &corev1.ConfigMap{}, victim.Namespace, victim.Name)

	w.putBackData(v, last)
	w.ready(v)
	w.putBackData(v, forge(t, last, entry))
	w.refused(v, "somebody else has written it")
	w.dropRecords(v)
	w.ready(v)
	require.Equal(t, was, w.generations(), "what is installed was taken over as it is")
	require.Equal(t, victim.UID, get(w, &corev1.ConfigMap{}, victim.Namespace, victim.Name).UID)
	require.Greater(t, v.Status.Inventory.Serial, int64(1), "numbers go on")
	w.putBackData(v, last)
	w.refused(v, "it is older than the status")
	w.dropRecords(v)
	w.ready(v)
}

// Of one copy that somebody has written the other one is the remedy, and it is told once.
func TestAForgedCopyIsWrittenAgainFromTheOther(t *testing.T) {
	w, v := installed(t)
	victim, entry := w.somebodys("victim", nil)
	for _, name := range recordsOf(v) {
		w.events.told = nil
		w.setRecord(name, forge(t, w.recorded(v), entry))
		w.ready(v)
		for _, copied := range recordsOf(v) {
			require.Equal(t, w.recorded(v), get(w, &corev1.ConfigMap{}, w.ns, copied).Data)
		}
		w.writes = 0
		w.look(v)
		require.Zero(t, w.writes)
		require.Equal(t, 1, strings.Count(w.events.all(), "ConfigMap "+w.ns+"/"+name+": it does not bear the operator's seal"), w.events.all())
	}
	get(w, &corev1.ConfigMap{}, victim.Namespace, victim.Name)
	_, there := w.inventory(v).Get(entry.Key)
	require.False(t, there)
}

// A record of the same revision, as good as it was then, is older: what it remembers of drivers
// would be in force again.
func TestAnOlderRecordOfTheSameRevisionIsNotBelieved(t *testing.T) {
	w, v := installed(t)
	older, revision := w.recorded(v), v.Status.Revision
	w.change(v, func() { v.Spec.StorageProvider.Snapshots = &v1alpha1.SnapshotLimits{MaxPerVolume: 4} })
	w.until("configured", func() bool { w.ready(v); return w.recorded(v)[inventory.DataKey] != older[inventory.DataKey] })
	require.Equal(t, revision, v.Status.Revision)
	newer := w.recorded(v)
	w.putBackData(v, older)
	w.refused(v, "it is older than the status")
	w.putBackData(v, newer)
	w.ready(v)
}

// Where no seal can be good (an operator from before there were seals has written the record;
// the key is lost) what is installed stays and goes on being cared for. What is not wanted any
// more goes where its labels, too, say that it is the operator's.
func TestARecordWithoutASealDeletesOnlyWhatCarriesTheLabels(t *testing.T) {
	for name, unseal := range map[string]func(w *world, v *v1alpha1.VDOConfig){
		"from an operator without seals": func(w *world, v *v1alpha1.VDOConfig) {
			v.Status.Inventory = nil
			require.NoError(w.t, w.Status().Update(context.Background(), v))
			data := w.recorded(v)
			delete(data, "seal")
			w.putBackData(v, data)
		},
		"the key is lost": func(w *world, _ *v1alpha1.VDOConfig) {
			for _, name := range []string{"vdo-config-hash", "vdo-config-hash-copy"} {
				require.NoError(w.t, w.Delete(context.Background(), get(w, &corev1.Secret{}, w.ns, name)))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, v := installed(t)
			objects, was := w.inventory(v).Len(), w.uids(v)
			victim, forged := w.somebodys("victim", nil)
			half, halfForged := w.somebodys("half", map[string]string{"app.kubernetes.io/managed-by": "vdo-operator"})
			leftover, known := w.somebodys("leftover", map[string]string{"app.kubernetes.io/managed-by": "vdo-operator", "vdo.vmware.com/driver": "csi"})
			unseal(w, v)
			w.putBackData(v, forge(t, w.recorded(v), forged, halfForged, known))
			w.until("the leftover is removed", func() bool { w.ready(v); return gone(w, leftover, leftover.Namespace, leftover.Name) })
			w.until("all is settled", func() bool { w.ready(v); return w.inventory(v).Len() == objects })
			require.Equal(t, victim.UID, get(w, &corev1.ConfigMap{}, victim.Namespace, victim.Name).UID)
			require.Equal(t, half.UID, get(w, &corev1.ConfigMap{}, half.Namespace, half.Name).UID)
			require.Equal(t, was, w.uids(v), "nothing was made anew")
			require.NotContains(t, w.recorded(v)[inventory.DataKey], `"unsealed"`)
			require.NotContains(t, w.recorded(v), inventory.MarksKey)
			require.NotNil(t, v.Status.Inventory)
			key := get(w, &corev1.Secret{}, w.ns, "vdo-config-hash").Data["key"]
			require.Equal(t, inventory.KeyID(key), v.Status.Inventory.KeyID)
			w.putBackData(v, forge(t, w.recorded(v), forged))
			w.refused(v, "somebody else has written it")
			w.dropRecords(v)
			w.ready(v)
		})
	}
}

// uids are those of all objects that the inventory names.
func (w *world) uids(v *v1alpha1.VDOConfig) map[inventory.Key]string {
	all := map[inventory.Key]string{}
	for _, e := range w.inventory(v).Entries() {
		all[e.Key] = e.UID
	}
	return all
}

// Of two keys the one counts that a status knows, for a VDOConfig that is new too: who is in force goes
// on. Where no status knows either, or statuses know both, that is told.
func TestTwoKeysOfTwoVDOConfigsAreTold(t *testing.T) {
	w, v := installed(t)
	other := w.config("another")
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(w.Delete(context.Background(), other))) })
	s := get(w, &corev1.Secret{}, w.ns, "vdo-config-hash-copy")
	key := s.Data["key"]
	set := func(key []byte) {
		s.Data["key"] = key
		require.NoError(t, w.Update(context.Background(), s))
	}
	set(make([]byte, len(key)))
	t.Cleanup(func() { set(key) })
	driver, known := v.Status.Drivers[0].Version, v.Status.Inventory
	knows := func(o *v1alpha1.VDOConfig, at *v1alpha1.InventoryStatus) {
		w.look(o)
		o.Status.Inventory = at
		require.NoError(t, w.Status().Update(context.Background(), o))
	}
	require.Contains(t, cond(t, w.later(other), "Ready").Message, "VDOConfig "+w.ns+"/site is in force")
	w.ready(v)
	leaves := w.config("leaves")
	w.change(leaves, func() { leaves.Finalizers = []string{"vdo.vmware.com/drivers"} })
	require.NoError(t, w.Delete(t.Context(), leaves))
	w.until("it is gone", func() bool { w.pass(client.ObjectKeyFromObject(leaves)); return gone(w, leaves, w.ns, leaves.Name) })
	w.ready(v)

	knows(v, nil)
	for _, o := range []*v1alpha1.VDOConfig{other, v} {
		require.Contains(t, cond(t, w.later(o), "Ready").Message, "each has another key, and no status knows either")
	}
	require.Equal(t, driver, v.Status.Drivers[0].Version)
	knows(v, known)
	w.ready(v)

	knows(other, &v1alpha1.InventoryStatus{Serial: 1, KeyID: inventory.KeyID(make([]byte, len(key)))})
	third := w.config("third")
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(w.Delete(context.Background(), third))) })
	require.Contains(t, cond(t, w.later(third), "Ready").Message, "each has another key, and each is known to the status of another VDOConfig")
}

// A VDOConfig does not come in force by a record that somebody has written for it.
func TestAForgedRecordPutsNoOtherVDOConfigInForce(t *testing.T) {
	w, v := installed(t)
	other := w.config("another")
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(w.Delete(context.Background(), other))) })
	w.change(other, func() { other.Finalizers = []string{"vdo.vmware.com/drivers"} })
	w.change(v, func() { v.Finalizers = nil })
	for _, name := range recordsOf(other) {
		w.setRecord(name, w.recorded(v))
	}
	w.writes = 0
	w.look(other)
	require.Contains(t, cond(t, other, "Ready").Message, "VDOConfig "+w.ns+"/site is in force")
	require.Zero(t, w.writes)
	w.dropRecords(v) // the status knows that something was installed
	w.look(other)
	require.Contains(t, cond(t, other, "Ready").Message, "VDOConfig "+w.ns+"/site is in force")
	require.Zero(t, w.writes)
	for _, name := range recordsOf(other) {
		require.NoError(t, w.Delete(t.Context(), get(w, &corev1.ConfigMap{}, w.ns, name)))
	}
	require.NoError(t, w.Delete(t.Context(), other))
	w.until("it is gone", func() bool { w.pass(client.ObjectKeyFromObject(other)); return gone(w, other, w.ns, other.Name) })
	w.ready(v)
}

// Who puts a record there before the VDOConfig has installed anything has nothing believed of
// it: neither what it remembers, such as the cluster id, nor objects, though they carry the
// operator's labels. It is told, and written over.
func TestARecordThatWasThereBeforeIsNotBelieved(t *testing.T) {
	w := start(t, pair)
	v := w.config("site")
	require.NoError(t, client.IgnoreAlreadyExists(w.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "vmware-system-csi"}})))
	victim, entry := w.somebodys("victim", map[string]string{"app.kubernetes.io/managed-by": "vdo-operator", "vdo.vmware.com/driver": "csi"})
	w.putBack(v, inventory.Of(entry).WithMemory(inventory.Memory{ClusterID: "forged", Kubernetes: "v1.20.0", KeepsNodes: true}))
	w.ready(v)
	require.Equal(t, victim.UID, get(w, &corev1.ConfigMap{}, victim.Namespace, victim.Name).UID)
	conf := get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret").Data["csi-vsphere.conf"]
	require.NotContains(t, string(conf), "forged")
	require.NotContains(t, w.recorded(v)[inventory.DataKey], "forged")
	for _, name := range recordsOf(v) {
		require.Equal(t, 1, strings.Count(w.events.all(), "ConfigMap "+w.ns+"/"+name+": it does not bear the operator's seal"), w.events.all())
	}
	require.NotContains(t, w.events.all(), "were deleted")
}

// While there are volumes that nothing else knows the cluster id of, it is not written over
// either: it may be of a backup that was restored without statuses.
func TestARecordThatMayBeOfABackupIsNotWrittenOver(t *testing.T) {
	w := start(t, pair)
	v := w.config("site")
	pv := w.volume()
	w.putBack(v, inventory.Inventory{}.WithMemory(inventory.Memory{ClusterID: "the-volumes"}))
	was := w.recorded(v)
	for range 2 {
		w.look(v)
	}
	w.later(v)
	require.Zero(t, w.writes, "nothing is changed")
	ready := cond(t, v, "Ready")
	require.Equal(t, "False Untrusted", string(ready.Status)+" "+ready.Reason)
	require.Contains(t, ready.Message, "vmware-system-csi/vsphere-config-secret")
	require.Equal(t, was, w.recorded(v))

	require.NoError(t, client.IgnoreAlreadyExists(w.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "vmware-system-csi"}})))
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: "vsphere-config-secret"},
		StringData: map[string]string{"csi-vsphere.conf": "[Global]\ncluster-id = \"the-volumes\"\n"}})
	w.ready(v)
	conf := get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret").Data["csi-vsphere.conf"]
	require.Contains(t, string(conf), "the-volumes")
	w.dropVolume(pv)
}

// What an operator wrote that was killed before it wrote the status, with numbers that are given
// again once both records were deleted, is not put back.
func TestWhatAKilledPassWroteIsNotPutBack(t *testing.T) {
	w, v := installed(t)
	victim, entry := w.somebodys("victim", map[string]string{"app.kubernetes.io/managed-by": "vdo-operator", "vdo.vmware.com/driver": "csi"})
	v.Status.Inventory.Serial += 50
	w.seal(v, w.inventory(v).With(entry))
	killed := w.recorded(v)
	w.dropRecords(v)
	w.ready(v)
	w.putBackData(v, killed)
	w.refused(v, "it is older than the status: the records were made anew")
	require.Equal(t, victim.UID, get(w, &corev1.ConfigMap{}, victim.Namespace, victim.Name).UID)
	w.dropRecords(v)
	w.ready(v)
}
