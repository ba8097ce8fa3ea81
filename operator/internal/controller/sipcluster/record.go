package sipcluster

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// records are the inventory and what of it is on the cluster. See package inventory for what
// is believed of a record, and why.
type records struct {
	inventory inventory.Inventory
	kept      inventory.Loaded // the record as it is on the cluster
	forged    error            // why it is not believed
	lost      bool             // there was one, and what is there says nothing
	key       []byte           // of seals; nil where there is none yet
	missing   []string         // the Secrets that it is not in
	live      plan.Live
	refused   map[inventory.Key]error
}

// sealSecrets hold the key of seals, both the same.
var sealSecrets = []string{"vdo-sip-seal", "vdo-sip-seal-copy"}

const sealKeySize = 32 // bytes

// load reads the record. One that is somebody else's counts as lost: see [records.recover].
func (r *records) load(ctx context.Context, p *pass) error {
	var err error
	if r.key, r.missing, err = p.Cluster.KeyThere(ctx, p.Namespace, sealSecrets, p.knownKeys()); err != nil {
		return err
	}
	// Of a record without a seal only what carries the SIPCluster's labels is believed: see doubt.
	r.kept, err = p.Cluster.LoadInventory(ctx, p.owner(p.sip), inventory.Proof{Key: r.key, UID: string(p.sip.UID), Anchor: anchor(p.sip), Earlier: true})
	if reason := fault.Gravest(err); (reason == fault.Untrusted || reason == fault.Corrupt) && !r.kept.Later {
		r.forged, err = err, nil
	}
	if err != nil {
		return err
	}
	r.lost = !r.kept.Found && (r.forged != nil || p.sip.Status.Inventory != nil)
	r.inventory, r.live, r.refused = r.kept.Inventory, plan.Live{}, map[inventory.Key]error{}
	for _, e := range r.inventory.Entries() {
		if e.Namespace != p.key.Namespace { // nothing of it was ever made there
			r.inventory = r.inventory.Without(e.Key)
		}
	}
	if !r.kept.Sealed || !p.sip.DeletionTimestamp.IsZero() {
		if err := r.recover(ctx, p); err != nil {
			return err
		}
	}
	if err := r.read(ctx, p, nil); err != nil {
		return err
	}
	if !r.kept.Sealed {
		r.remember(p)
	}
	r.doubt(p)
	return nil
}

// knownKeys are the keys of seals that SIPClusters' status know.
func (p *pass) knownKeys() inventory.KnownKeys {
	return inventory.KnownKeys{Own: anchor(p.sip).KeyID, Kind: "SIPCluster", Others: func(ctx context.Context) (ids []string, err error) {
		var all airship.SIPClusterList
		if err := p.Client.List(ctx, &all); err != nil {
			return nil, &fault.Error{Reason: fault.Unreachable, Op: "list", Subject: "SIPClusters", Err: err}
		}
		for i := range all.Items {
			ids = append(ids, anchor(&all.Items[i]).KeyID)
		}
		return ids, nil
	}}
}

func anchor(sip object) inventory.Anchor {
	if sip.Status.Inventory == nil {
		return inventory.Anchor{}
	}
	return inventory.Anchor{Serial: sip.Status.Inventory.Serial, KeyID: sip.Status.Inventory.KeyID, Epoch: sip.Status.Inventory.Epoch}
}

// anchored is what the status says of the record: what is not sealed is not told.
func (r *records) anchored(was *airship.InventoryStatus) *airship.InventoryStatus {
	if !r.kept.Sealed {
		return was
	}
	return &airship.InventoryStatus{Serial: r.kept.Serial, KeyID: inventory.KeyID(r.key), Epoch: r.kept.Epoch.ID}
}

// recover finds what was made for the SIPCluster and may lead to its hosts, by its labels; and
// where no record proves to be its own, all that was made for it, by names and labels. What has a
// name alone is noted as an unsealed record would have it, where there was a record: it stays, and
// is named to who deletes the SIPCluster.
func (r *records) recover(ctx context.Context, p *pass) error {
	found, err := p.labelled(ctx)
	if err != nil {
		return err
	}
	for _, e := range found {
		r.take(e)
	}
	if r.kept.Sealed {
		return nil
	}
	names := services.Names(p.key.Name, &p.sip.Spec.Services)
	for _, s := range p.sip.Status.Services {
		names = append(names, s.Name)
	}
	for _, e := range found {
		names = append(names, e.Name)
	}
	if r.lost || len(found) > 0 || !p.sip.DeletionTimestamp.IsZero() {
		names = append(names, services.AllNames(p.key.Name)...)
	}
	slices.Sort(names)
	parts := map[inventory.Key]inventory.Part{}
	var ids []inventory.ID
	for _, name := range slices.Compact(names) {
		for _, o := range services.Made(name) {
			id := idOf(&o, p.key.Namespace)
			ids, parts[id.Key] = append(ids, id), inventory.Part(name)
		}
	}
	live, refused, err := p.Cluster.Read(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		part := parts[id.Key]
		switch o := live[id.Key]; {
		case o != nil && (r.lost || p.marked(o)):
			r.take(inventory.Entry{ID: id, Driver: part, UID: string(o.GetUID()), Unsealed: !p.marked(o)})
		case refused[id.Key] != nil && slices.ContainsFunc(found, func(e inventory.Entry) bool { return e.Driver == part }):
			r.take(inventory.Entry{ID: id, Driver: part}) // it is looked for once it may be read
		}
	}
	// Of a removal that was interrupted nothing is left but the finalizer.
	r.lost = r.lost && (r.inventory.Len() > 0 || p.sip.DeletionTimestamp.IsZero())
	return nil
}

// take adds what was found to the inventory. Of what a record names already the UID of now
// counts, where the labels are the SIPCluster's: a restore gives objects others.
func (r *records) take(e inventory.Entry) {
	known, found := r.inventory.Get(e.Key)
	if found && (e.Unsealed || e.UID == "") {
		return
	}
	if found {
		known.UID = e.UID
		e = known
	}
	r.inventory = r.inventory.With(e)
}

// labelled are the Deployments and Services with the SIPCluster's labels, of which each service
// has one of its name: the operator may list these kinds in all namespaces.
func (p *pass) labelled(ctx context.Context) ([]inventory.Entry, error) {
	labels := p.labels()
	for _, value := range labels {
		if len(content.IsLabelValue(value)) > 0 {
			return nil, nil // no object has it
		}
	}
	var all []inventory.Entry
	for _, kind := range []schema.GroupVersionKind{appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("Service")} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := pages.Each(ctx, p.Reader, list, func() {
			for i := range list.Items {
				o := &list.Items[i]
				o.SetGroupVersionKind(kind)
				all = append(all, inventory.Entry{ID: idOf(o, o.Namespace), Driver: inventory.Part(o.Name), UID: string(o.UID)})
			}
		}, client.InNamespace(p.key.Namespace), client.MatchingLabels(labels))
		if err != nil {
			return nil, &fault.Error{
				Reason: fault.Unreachable, Op: "list " + kind.Kind + "s in", Subject: "namespace " + p.key.Namespace, Err: err,
				Hint: "see that the operator may list them: apply deploy/sip",
			}
		}
	}
	return all, nil
}

func idOf(o *metav1.PartialObjectMetadata, namespace string) inventory.ID {
	kind := o.GroupVersionKind()
	return inventory.ID{Version: kind.Version, Key: inventory.Key{Group: kind.Group, Kind: kind.Kind, Namespace: namespace, Name: o.Name}}
}

// doubt has what a record without a seal names taken for the SIPCluster's only where it
// carries the SIPCluster's labels, and its image for the last one only where it runs.
func (r *records) doubt(p *pass) {
	for _, e := range r.inventory.Entries() {
		if !e.Unsealed {
			continue
		}
		live := r.live[e.Key]
		if live == nil || !p.marked(live) || imageOf(live) != e.Release {
			e.Release = ""
		}
		e.Unsealed = live == nil || !p.marked(live)
		r.inventory = r.inventory.With(e)
	}
}

// read adds what of the inventory and of further objects was not read yet.
func (r *records) read(ctx context.Context, p *pass, more []inventory.ID) error {
	var ids []inventory.ID
	for _, e := range r.inventory.Entries() {
		more = append(more, e.ID)
	}
	for _, id := range more {
		if _, known := r.live[id.Key]; !known && r.refused[id.Key] == nil {
			ids = append(ids, id)
		}
	}
	live, refused, err := p.Cluster.Read(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		r.live[id.Key] = live[id.Key] // nil: it is known not to be there
		if refused[id.Key] != nil {
			r.refused[id.Key] = refused[id.Key]
		}
	}
	return nil
}

// settled tells whether the record need not be written: both copies are there, with a seal
// of now by a key that is kept twice.
func (r *records) settled() bool {
	switch {
	case r.forged != nil || r.lost || !r.kept.Whole:
		return false
	case !r.kept.Found:
		return true
	}
	return r.kept.Sealed && r.kept.Epoch.ID != "" && len(r.missing) == 0
}

// save writes the inventory, where it says something new or its record has to be mended.
func (r *records) save(ctx context.Context, p *pass) error {
	if r.settled() && r.inventory.Equal(r.kept.Inventory) {
		return nil
	}
	if err := r.keepKey(ctx, p); err != nil {
		return err
	}
	of := p.owner(p.sip)
	by := r.kept.Next(r.key, string(p.sip.UID), anchor(p.sip))
	if err := p.Cluster.SaveInventory(ctx, of, r.inventory, by); err != nil {
		return err
	}
	r.tell(p)
	r.kept = by.Saved(r.inventory, inventory.SIPClusters.Both(of.Namespace, of.Name))
	r.forged, r.lost = nil, false
	return nil
}

// tell tells, once the record is written again, what became of the one of before.
func (r *records) tell(p *pass) {
	for _, err := range append(slices.Clone(r.kept.Rejected), r.forged) {
		if err != nil {
			p.warn(string(fault.Gravest(err)), "Repair", "%s; it was written again, from the other copy or by what the status and labels say", err)
		}
	}
	if r.lost && r.forged == nil {
		both := inventory.SIPClusters.Both(p.Namespace, p.owner(p.sip).Name)
		p.warn(string(fault.NotFound), "Repair", "ConfigMaps %s, the record of what was made, were deleted or emptied: they were written again by what the status and labels say", strings.Join(both, " and "))
	}
}

// keepKey makes the key of seals where there is none, and has it kept twice: without it records
// are believed no more than objects' labels. Of two operators that make one, one fails.
func (r *records) keepKey(ctx context.Context, p *pass) error {
	key := r.key
	if key == nil {
		key = make([]byte, sealKeySize)
		if _, err := io.ReadFull(p.Rand, key); err != nil {
			return fmt.Errorf("make a key: %w", err)
		}
	}
	if err := p.Cluster.KeepKey(ctx, p.Namespace, r.missing, key); err != nil {
		return keyFault(err)
	}
	r.key, r.missing = key, nil
	return nil
}

func keyFault(err error) error {
	if fault.ReasonOf(err) != fault.Forbidden {
		return err
	}
	return &fault.Error{
		Reason: fault.Forbidden, Op: "keep", Subject: "the key of seals", Err: err,
		Hint: "apply deploy/sip/rbac.yaml of this version: records of SIPClusters are sealed with a key that the operator keeps there",
	}
}

// forget takes what is gone out of the record. Of what is left on the cluster an event tells.
func (p *pass) forget(s plan.Step) {
	p.records.inventory = p.records.inventory.Without(s.Key)
	if s.Action == plan.Forget {
		p.warn("LeftBehind", "Delete", "%s stays: %s; delete it where nobody needs it", s.Key, s.Reason)
	}
}

// warn records an event.
func (p *pass) warn(reason, action, note string, args ...any) {
	p.Writer.Recorder.Eventf(p.sip, nil, corev1.EventTypeWarning, reason, action, "%s", condition.Cut(fmt.Sprintf(note, args...), condition.MaxNote))
}
