package plan

import (
	"cmp"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// never are the kinds that are never pruned: with them goes what others have.
var never = map[string]string{
	"Namespace":                "others may have objects in it",
	"CustomResourceDefinition": "all resources of its kind would go with it",
	"PersistentVolume":         "it holds data",
	"StorageClass":             "claims may name it",
	"VolumeSnapshotClass":      "snapshots may name it",
}

// order in which kinds go: what admits requests first, for it fails closed; then
// what runs; then what that read; then its rights.
var order = [][]string{
	{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"},
	{"Deployment", "DaemonSet", "StatefulSet"},
	{"Service", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap", "Secret"},
	{"CSIDriver"},
	{"RoleBinding", "ClusterRoleBinding"},
	{"Role", "ClusterRole"},
	{"ServiceAccount", mirrorset.Digests.Kind}, // nodes pull by the latter while there are pods
}

// wave is the place of a step in the order; what is not in it goes with the rights. The network goes after
// everything that needs it to be removed in good order.
func wave(s Step) int {
	at := slices.IndexFunc(order, func(kinds []string) bool { return slices.Contains(kinds, s.Kind) })
	if at < 0 {
		at = len(order) - 2
	}
	if s.Driver == matrix.CNI {
		at += len(order)
	}
	return at
}

// reverse is the order of removal: that of installation, the other way round.
var reverse = []matrix.Driver{matrix.CSI, matrix.SnapshotController, matrix.CPI, matrix.CNI}

func byRemoval(a, b Step) int {
	return cmp.Or(wave(a)-wave(b), slices.Index(reverse, a.Driver)-slices.Index(reverse, b.Driver), a.Compare(b.Key))
}

func (in *Input) removals(desired map[inventory.Key]bool) []Step {
	var steps []Step
	for _, e := range in.Inventory.Entries() {
		if !desired[e.Key] {
			steps = append(steps, in.removal(e))
		}
	}
	slices.SortStableFunc(steps, byRemoval)
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
		s.Action, s.Reason = Keep, gated // one that was deleted is made again later
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
		s.Action, s.Reason = Prune, cmp.Or(retention.But[e.Key], "is no longer wanted")
	}
	return s
}

// Retention is why the objects of a driver that is not wanted stay.
type Retention struct {
	Action Action // Keep or Forget
	Reason string
	// But are objects that go all the same, and why.
	But map[inventory.Key]string
}

// Removal plans the removal of everything in an inventory, in order. What becomes of drivers
// that leave says which stay all the same.
func Removal(inv inventory.Inventory, live Live, refused map[inventory.Key]error, retained map[matrix.Driver]Retention) Plan {
	in := Input{Inventory: inv, Live: live, Refused: refused, Retained: retained}
	p := Plan{Steps: in.removals(nil)}
	p.keepMirrors()
	return p
}

// keepMirrors leaves what leads nodes to the mirror where pods of a driver stay.
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

// Without returns the plan without the steps of drivers.
func (p Plan) Without(drivers map[matrix.Driver]bool) Plan {
	return Plan{Steps: slices.DeleteFunc(slices.Clone(p.Steps), func(s Step) bool { return drivers[s.Driver] })}
}

// NextWave returns the prunes of a plan that may be done now: those of the first
// kinds in order that are still there. What reads or is allowed by others goes
// before them, and is waited for.
func (p Plan) NextWave() []Step {
	var steps []Step
	for _, s := range p.Steps {
		if s.Action == Prune && (len(steps) == 0 || wave(s) == wave(steps[0])) {
			steps = append(steps, s)
		}
	}
	return steps
}
