package sipcluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// records are the inventory and what of it is on the cluster.
type records struct {
	inventory inventory.Inventory
	kept      cluster.Loaded // the record as it is on the cluster
	live      plan.Live
	refused   map[inventory.Key]error
}

// load reads the record.
func (r *records) load(ctx context.Context, p *pass) (err error) {
	if r.kept, err = p.Cluster.LoadInventory(ctx, p.owner(p.sip)); err != nil {
		return err
	}
	r.inventory, r.live, r.refused = r.kept.Inventory, plan.Live{}, map[inventory.Key]error{}
	for _, e := range r.inventory.Entries() {
		if e.Namespace != p.key.Namespace { // nothing of it was ever made there
			r.inventory = r.inventory.Without(e.Key)
		}
	}
	if r.lost(p) || !p.sip.DeletionTimestamp.IsZero() {
		if err := r.recover(ctx, p); err != nil {
			return err
		}
	}
	return r.read(ctx, p, nil)
}

// lost tells whether there is no record of what was made.
func (r *records) lost(p *pass) bool { return !r.kept.Found && len(p.sip.Status.Services) > 0 }

// recover finds what was made for the SIPCluster and may lead to its hosts, by its labels, and where
// the record is lost, all that was made for it, by names and labels.
func (r *records) recover(ctx context.Context, p *pass) error {
	found, err := p.labelled(ctx)
	if err != nil {
		return err
	}
	names := services.AllNames(p.key.Name)
	for _, e := range found {
		r.take(e)
		names = append(names, e.Name)
	}
	if r.kept.Found {
		return nil
	}
	for _, s := range p.sip.Status.Services {
		names = append(names, s.Name)
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
		case o != nil && p.marked(o):
			r.take(inventory.Entry{ID: id, Driver: part, UID: string(o.GetUID()), Release: imageOf(o)})
		case refused[id.Key] != nil && slices.ContainsFunc(found, func(e inventory.Entry) bool { return e.Driver == part }):
			r.take(inventory.Entry{ID: id, Driver: part}) // it is looked for once it may be read
		}
	}
	return nil
}

// take adds what was found to the inventory. Of what a record names already the UID of now
// counts, where the labels are the SIPCluster's: a restore gives objects others.
func (r *records) take(e inventory.Entry) {
	known, found := r.inventory.Get(e.Key)
	if found && e.UID == "" {
		return
	}
	if found {
		known.UID = e.UID
		known.Release = cmp.Or(known.Release, e.Release)
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
				Hint: "let the operator list them: `vdo-bundle install-manifests BUNDLE --sip | kubectl apply -f -`",
			}
		}
	}
	return all, nil
}

func idOf(o *metav1.PartialObjectMetadata, namespace string) inventory.ID {
	kind := o.GroupVersionKind()
	return inventory.ID{Version: kind.Version, Key: inventory.Key{Group: kind.Group, Kind: kind.Kind, Namespace: namespace, Name: o.Name}}
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

// save writes the inventory, where it says something new.
func (r *records) save(ctx context.Context, p *pass) (err error) {
	if r.inventory.Equal(r.kept.Inventory) {
		return nil
	}
	r.kept, err = p.Cluster.SaveInventory(ctx, p.owner(p.sip), r.inventory, r.kept)
	return err
}

// imageOf is the image of a Deployment's only container, "" of other kinds.
func imageOf(o *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if len(containers) != 1 {
		return ""
	}
	first, _ := containers[0].(map[string]any)
	image, _ := first["image"].(string)
	return image
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
