package plan

import (
	"cmp"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// never are the kinds that are never pruned, since others would lose objects.
var never = map[string]string{
	"Namespace":                "others may have objects in it",
	"CustomResourceDefinition": "all resources of its kind would go with it",
	"PersistentVolume":         "it holds data",
	"StorageClass":             "claims may name it",
	"VolumeSnapshotClass":      "snapshots may name it",
}

// order is the order of removal of kinds: admission first, since it fails closed; then workloads; then their
// configuration; then their permissions.
var order = [][]string{
	{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"},
	{"Deployment", "DaemonSet", "StatefulSet"},
	{"Service", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap", "Secret"},
	{"CSIDriver"},
	{"RoleBinding", "ClusterRoleBinding"},
	{"Role", "ClusterRole"},
	{"ServiceAccount", mirrorset.Digests.Kind}, // nodes pull by the latter while there are pods
}

// wave returns a step's position in order. Unlisted kinds go with the permissions. The network plug-in goes last,
// since an orderly removal of the others needs it. The mirror set goes with it: nodes find its images by the set.
func wave(s Step) int {
	at := slices.IndexFunc(order, func(kinds []string) bool { return slices.Contains(kinds, s.Kind) })
	if at < 0 {
		at = len(order) - 2
	}
	if s.Driver == matrix.CNI || s.Driver == drivers.MirrorSet {
		at += len(order)
	}
	return at
}

// reverse is the order of removal of drivers, the reverse of that of installation.
var reverse = []matrix.Driver{matrix.CSI, matrix.SnapshotController, matrix.CPI, matrix.CNI}

func (in *Input) removals(desired map[inventory.Key]bool) []Step {
	var steps []Step
	for _, e := range in.Inventory.Entries() {
		if !desired[e.Key] {
			steps = append(steps, in.removal(e))
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int {
		drivers := slices.Index(reverse, a.Driver) - slices.Index(reverse, b.Driver)
		return cmp.Or(wave(a)-wave(b), drivers, a.Compare(b.Key))
	})
	return steps
}

func (in *Input) removal(e inventory.Entry) Step {
	s := Step{ID: e.ID, Driver: e.Driver}
	live, desired := in.Live[e.Key], in.wants(e.Driver)
	gated, isGated := in.Gated[e.Driver]
	retention, stays := in.Retained[e.Driver]
	untrusted := in.Untrusted[e.Driver]
	if err := in.Refused[e.Key]; err != nil {
		s.Action, s.Reason = Keep, err.Error()
		return s
	}
	if live != nil && !isGated {
		s.of(live)
	}
	switch {
	case isGated:
		s.Action, s.Reason = Keep, gated // a deleted object is recreated later
	case live == nil:
		s.Action, s.Reason = Gone, "no longer exists"
	case stays && !desired && retention.But[e.Key] == "":
		s.Action, s.Reason = retention.Action, retention.Reason
	case untrusted != "" && desired && !sameBundle(e.Content, in.Content[e.Driver]):
		s.Action, s.Reason = Keep, untrusted
	case never[e.Kind] != "":
		s.Action, s.Reason = Keep, never[e.Kind]
	case e.Kind == "CSIDriver" && desired:
		s.Action, s.Reason = Keep, "volumes are attached through it"
	case !Ours(live, e):
		s.Action, s.Reason = Forget, "another manager has created it again"
	default:
		s.Action, s.Reason = Prune, cmp.Or(retention.But[e.Key], "it is obsolete")
	}
	return s
}

// Retention is why the objects of a driver that is not requested stay.
type Retention struct {
	Action Action // Keep or Forget
	Reason string
	// But has the objects that are removed anyway, and why.
	But map[inventory.Key]string
}

// Removal plans the removal of everything in an inventory, in order. retained says which drivers keep objects.
func Removal(inv inventory.Inventory, live Live, refused map[inventory.Key]error, retained map[matrix.Driver]Retention) Plan {
	in := Input{Inventory: inv, Live: live, Refused: refused, Retained: retained}
	p := Plan{Steps: in.removals(nil)}
	p.keepMirrors()
	return p
}

// keepMirrors keeps the mirror set if pods of a driver stay: nodes find their images by it.
func (p Plan) keepMirrors() {
	stays := slices.ContainsFunc(p.Steps, func(s Step) bool {
		return slices.Contains(order[1], s.Kind) && (s.Action == Keep || s.Action == Forget)
	})
	for i, s := range p.Steps {
		if stays && s.Driver == drivers.MirrorSet && s.Action == Prune {
			p.Steps[i].Action, p.Steps[i].Reason = Forget, "the nodes find images of pods that stay by it"
		}
	}
}

// NextWave returns the prunes to do now: those of the first wave in order that has any. The caller waits for them
// before the next wave.
func NextWave(all []Step) []Step {
	var steps []Step
	for _, s := range all {
		if s.Action == Prune && (len(steps) == 0 || wave(s) == wave(steps[0])) {
			steps = append(steps, s)
		}
	}
	return steps
}
