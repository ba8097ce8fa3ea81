package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object))
	return o
}

func ours(o *unstructured.Unstructured, release string) *unstructured.Unstructured {
	driver, version, _ := strings.Cut(release, "@")
	o = o.DeepCopy()
	o.SetLabels(map[string]string{render.LabelManagedBy: render.ManagedBy, render.LabelDriver: driver,
		render.LabelVersion: version})
	return o
}

func alive(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	o.SetUID(types.UID("uid-" + o.GetName()))
	o.SetResourceVersion("7")
	return o
}

const daemonSet = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {namespace: kube-system, name: vsphere-cloud-controller-manager}
spec:
  selector: {matchLabels: {name: vsphere-cloud-controller-manager}}
  template: {spec: {containers: [{name: c, image: a}]}}
`

// one makes the plan for one wanted object.
func one(t *testing.T, desired, live, dry *unstructured.Unstructured, edit func(*plan.Input)) plan.Step {
	in := plan.Input{
		Stages: []render.Stage{{Name: render.StageNode, Drivers: []matrix.Driver{matrix.CPI},
			Objects: []render.Object{{Unstructured: desired, Driver: matrix.CPI, Apply: render.Merge}}}},
		Live: plan.Live{}, DryRun: map[inventory.Key]plan.Outcome{},
	}
	key := plan.IDOf(desired).Key
	if live != nil {
		in.Live[key] = live
	}
	in.DryRun[key] = plan.Outcome{Object: dry}
	if edit != nil {
		edit(&in)
	}
	p := plan.Make(in)
	require.NotEmpty(t, p.Steps)
	return p.Steps[0]
}

func TestStepOfAWantedObject(t *testing.T) {
	base := object(t, daemonSet)
	desired := ours(base, "cpi@1.33.1")
	changed := ours(base, "cpi@1.33.1")
	require.NoError(t, unstructured.SetNestedField(changed.Object, "x", "spec", "template", "spec", "dnsPolicy"))
	otherSelector := base.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(otherSelector.Object, "x", "spec", "selector", "matchLabels",
		"k8s-app"))
	deprecated := base.DeepCopy()
	require.NoError(t, unstructured.SetNestedMap(deprecated.Object, map[string]any{"matchLabels": map[string]any{"k8s-app": "vsphere-cloud-controller-manager"}}, "spec", "selector"))
	recorded := func(uid string) func(*plan.Input) {
		return func(in *plan.Input) {
			in.Inventory = inventory.Of(inventory.Entry{ID: plan.IDOf(base), Driver: matrix.CPI, UID: uid})
		}
	}
	refused := func(in *plan.Input) {
		in.DryRun[plan.IDOf(base).Key] = plan.Outcome{Err: errors.New("policy.site.example denied the request")}
	}
	unwatched := func(in *plan.Input) {
		in.Unwatched, in.Key = true, []byte("key")
		is := one(t, desired, nil, nil, func(in *plan.Input) { in.Key = []byte("key") })
		in.Inventory = inventory.Of(inventory.Entry{ID: is.ID, Driver: matrix.CPI, UID: "another", Release: "cpi@1.33.1",
			Rendered: is.Rendered})
	}
	with := func(o *unstructured.Unstructured, edit func(*unstructured.Unstructured)) *unstructured.Unstructured {
		o = o.DeepCopy()
		edit(o)
		return o
	}
	for name, c := range map[string]struct {
		live, dry *unstructured.Unstructured
		edit      func(*plan.Input)
		action    plan.Action
		adopts    bool
		says      string
		hint      string
	}{
		"absent": {action: plan.Create, says: "missing"},
		"drift":  {live: alive(changed), dry: alive(desired), edit: recorded("uid-vsphere-cloud-controller-manager"), action: plan.Change, says: "spec.template.spec.dnsPolicy"},
		"ours, the new one is refused": {live: alive(ours(otherSelector, "cpi@1.33.1")), edit: func(in *plan.Input) {
			recorded("uid-vsphere-cloud-controller-manager")(in)
			refused(in)
		}, action: plan.Conflict, says: "policy.site.example denied"},
		"an interrupted pass made it": {live: alive(ours(otherSelector, "cpi@1.33.1")), edit: recorded(""),
			action: plan.Recreate, says: "spec.selector"},
		"our label on somebody else's": {live: alive(ours(otherSelector, "cpi@1.33.1")), action: plan.Conflict, says: "another source", hint: "delete it"},
		"made anew under our label":    {live: alive(ours(otherSelector, "cpi@1.33.1")), edit: recorded("another"), action: plan.Conflict, says: "another source"},
		"not to be read": {edit: func(in *plan.Input) {
			in.Refused = map[inventory.Key]error{plan.IDOf(base).Key: errors.New("daemonsets is forbidden")}
		}, action: plan.Conflict, says: "is forbidden"},
		"upstream's deprecated one, and its configuration is to be kept": {live: alive(deprecated), edit: func(in *plan.Input) { in.Stages[0].Objects[0].Config = render.ConfigHash },
			action: plan.Wait, says: "once the requested configuration is accepted"},
		"upstream's deprecated one, and it is being deleted": {live: alive(with(deprecated, func(o *unstructured.Unstructured) {
			o.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
			o.SetFinalizers([]string{"foregroundDeletion", "site.example/keep"})
		})), edit: refused, action: plan.Recreate, adopts: true,
			says: "once its finalizers are gone: foregroundDeletion, site.example/keep"},
		"upstream's deprecated one, and nobody looks for drift": {live: alive(deprecated), edit: unwatched, action: plan.Unchanged},
		"deleted, and nobody looks for drift":                   {edit: unwatched, action: plan.Unchanged},
		"deleted, and so is a changed one of its driver": {edit: func(in *plan.Input) {
			unwatched(in)
			o := in.Stages[0].Objects[0]
			o.Unstructured = with(desired, func(o *unstructured.Unstructured) { o.SetName("changed") })
			in.Stages[0].Objects = append(in.Stages[0].Objects, o)
			in.Inventory = inventory.Of(append(in.Inventory.Entries(), inventory.Entry{ID: plan.IDOf(o.Unstructured),
				Driver: matrix.CPI, UID: "another", Release: "cpi@1.33.1", Rendered: "before"})...)
		}, action: plan.Create, says: "was deleted"},
		"upstream's deprecated one, with expressions": {live: alive(with(deprecated, func(o *unstructured.Unstructured) {
			require.NoError(t, unstructured.SetNestedSlice(o.Object, []any{map[string]any{"key": "x",
				"operator": "Exists"}}, "spec", "selector", "matchExpressions"))
		})), action: plan.Conflict, says: "another source"},
		"Helm's": {live: alive(with(base, func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "cpi",
				"meta.helm.sh/release-namespace": "infra"})
		})), action: plan.Conflict, says: "Helm release cpi", hint: "helm uninstall cpi -n infra"},
		"another tool's": {live: alive(with(base, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{render.LabelManagedBy: "argocd"}) })),
			action: plan.Conflict, says: "argocd manages it"},
		"OpenShift's": {live: alive(with(base, func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{"csi.openshift.io/managed": ""})
		})), action: plan.Conflict, says: "OpenShift manages it", hint: "managementState: Removed"},
		"an operator's": {live: alive(with(base, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"olm.owner": "x"}) })),
			action: plan.Conflict, says: "operator x"},
		"an owner's": {live: alive(with(base, func(o *unstructured.Unstructured) {
			o.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Thing", Name: "t", APIVersion: "v1", UID: "1"}})
		})), action: plan.Conflict, says: "Thing t owns it"},
		"refused by the API server": {live: alive(base), edit: refused, action: plan.Conflict, says: "policy.site.example denied"},
	} {
		t.Run(name, func(t *testing.T) {
			s := one(t, desired, c.live, c.dry, c.edit)
			require.Equal(t, c.action, s.Action, s)
			require.Equal(t, c.adopts, s.Adopts)
			require.Equal(t, c.action == plan.Wait || c.action == plan.Unchanged && strings.HasPrefix(name, "upstream's"), s.Object == nil)
			require.Contains(t, s.Reason, c.says)
			require.Contains(t, fault.HintOf(s.Err), c.hint)
			require.Equal(t, c.action == plan.Conflict, s.Err != nil)
		})
	}
}

// A rollback leaves our CRDs in the newer version: resources may use what only that one has. `helm uninstall` deletes
// the kinds in a release's templates, and with them every object of theirs: that is never advised before it is ruled
// out. Nothing but the cloud provider's DaemonSet, which has no volumes, is deleted to be adopted. A class is adopted
// with what others set, unless its own settings differ, and a binding unless others share it.
func TestKindsWithRulesOfTheirOwn(t *testing.T) {
	const csiNode, other = "vmware-system-csi, name: vsphere-csi-node", "kube-system, name: other"
	const tenants = "tenant, name: vsphere-cloud-controller-manager"
	crd := func(annotations string) string {
		return `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {
			name: volumesnapshots.snapshot.storage.k8s.io, annotations: {` + annotations + `}}}`
	}
	set := func(at, label string) string {
		return `{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: ` + at + `}, spec: {
			selector: {matchLabels: {` + label + `: vsphere-cloud-controller-manager}}}}`
	}
	class := func(has string) string {
		return `{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshotClass, metadata: {name: x}, ` + has + `}`
	}
	binding := func(role, subject string) string {
		return `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b},
			roleRef: {kind: ClusterRole, name: ` + role + `}, subjects: [{kind: User, name: ` + subject + `}]}`
	}
	for name, c := range map[string]struct {
		desired, live string
		kept          string // the release that the live one is of
		action        plan.Action
		says, hint    string
	}{
		"a CRD of a later release":    {crd(""), crd(""), "cpi@8.2.0_site.1", plan.Unchanged, "", ""},
		"a CRD of an earlier release": {crd(""), crd(""), "cpi@6.2.2", plan.Change, "", ""},
		"a CRD of Helm's": {crd(""), crd("meta.helm.sh/release-name: snap, meta.helm.sh/release-namespace: infra"), "",
			plan.Conflict, "", "set policy: disabled.*do not uninstall the release"},
		"a deprecated node plugin":  {set(csiNode, "name"), set(csiNode, "k8s-app"), "", plan.Conflict, "", ""},
		"another deprecated one":    {set(other, "name"), set(other, "k8s-app"), "", plan.Conflict, "", ""},
		"a tenant's deprecated one": {set(tenants, "name"), set(tenants, "k8s-app"), "", plan.Conflict, "", ""},
		"a class":                   {class("driver: a"), class("driver: a"), "", plan.Change, "", ""},
		"a class of another driver": {class("driver: a"), class("driver: b"), "", plan.Conflict, "", ""},
		"a class of another policy": {class("driver: a"), class("driver: a, deletionPolicy: x"), "", plan.Conflict, "", ""},
		"a class with a parameter":  {class("driver: a"), class("driver: a, parameters: {b: c}"), "", plan.Conflict, "", ""},
		"a binding":                 {binding("a", "b"), binding("a", "b"), "", plan.Change, "", ""},
		"a binding of others":       {binding("a", "b"), binding("a", "c"), "", plan.Conflict, "User /c", ""},
		"a binding to another role": {binding("a", "b"), binding("c", "b"), "", plan.Conflict, "", ""},
		"ours, and to another role": {binding("a", "b"), binding("c", "b"), "cpi@7.0.2", plan.Recreate, "", ""},
	} {
		desired, live := ours(object(t, c.desired), "cpi@7.0.2"), alive(object(t, c.live))
		if c.kept != "" {
			live = ours(live, c.kept)
		}
		s := one(t, desired, live, alive(desired), func(in *plan.Input) {
			if c.kept != "" {
				e := inventory.Entry{ID: plan.IDOf(live), Driver: matrix.CPI, UID: string(live.GetUID()), Release: c.kept}
				in.Inventory = inventory.Of(e)
			}
		})
		require.Equal(t, c.action, s.Action, name)
		require.Contains(t, s.Reason, c.says, name)
		require.Regexp(t, c.hint, fault.HintOf(s.Err), name)
		require.NotContains(t, fault.HintOf(s.Err), "helm uninstall", name)
		require.False(t, s.Adopts && strings.HasPrefix(name, "a class"), name)
	}
}

// A tool that applies objects again and again would undo what the operator does to them, and prunes
// what is taken out of it unless it is told not to.
func TestObjectsOfGitOpsToolsAreNotTakenOver(t *testing.T) {
	const fleet = "Fleet, or the manifests folder of K3s and RKE2"
	desired := ours(object(t, daemonSet), "cpi@1.33.1")
	for mark, c := range map[string]struct{ tool, keep string }{
		"argocd.argoproj.io/tracking-id":   {"Argo CD", "argocd.argoproj.io/sync-options: Prune=false"},
		"argocd.argoproj.io/instance":      {"Argo CD", "argocd.argoproj.io/sync-options: Prune=false"},
		"kustomize.toolkit.fluxcd.io/name": {"Flux", "kustomize.toolkit.fluxcd.io/prune: disabled"},
		"helm.toolkit.fluxcd.io/name":      {"Flux", "HelmRelease"},
		"kapp.k14s.io/app":                 {"kapp", "kapp.k14s.io/delete-strategy: orphan"},
		"kapp.k14s.io/identity":            {"kapp", "kapp.k14s.io/delete-strategy: orphan"},
		"objectset.rio.cattle.io/hash":     {fleet, "fleet.yaml; in the folder put an empty FILE.skip"},
		"objectset.rio.cattle.io/id":       {fleet, "keepResources"},
		"fleet.cattle.io/bundle-id":        {fleet, "keepResources"},
		"app.kubernetes.io/instance":       {},
	} {
		for _, kind := range []string{"labels", "annotations"} {
			live := alive(object(t, daemonSet))
			marks := map[string]string{mark: "x"}
			if c.tool != "" {
				marks[render.LabelManagedBy] = "Helm" // as of a chart that the tool renders
			}
			require.NoError(t, unstructured.SetNestedStringMap(live.Object, marks, "metadata", kind))
			require.Equal(t, c.tool, plan.AppliedBy(live), mark)
			s := one(t, desired, live, alive(desired), nil)
			if c.tool == "" {
				require.Equal(t, plan.Change, s.Action, mark)
				continue
			}
			require.Equal(t, plan.Conflict, s.Action, mark)
			require.Contains(t, s.Reason, c.tool+" manages it ("+mark+")")
			order := "disable pruning in " + c.tool + " first: .*" + c.keep + ".*; then take it out .* remove " + mark
			require.Regexp(t, order, fault.HintOf(s.Err))
			s = one(t, desired, live, alive(desired), func(in *plan.Input) {
				e := inventory.Entry{ID: plan.IDOf(live), Driver: matrix.CPI, UID: string(live.GetUID())}
				in.Inventory = inventory.Of(e)
			})
			require.Equal(t, plan.Change, s.Action, "%s: what is ours stays ours", mark)
		}
	}
	namespace := object(t, `{apiVersion: v1, kind: Namespace, metadata: {name: vmware-system-csi}}`)
	live := alive(namespace)
	live.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": "operator", render.LabelManagedBy: "Helm"})
	live.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "vdo"})
	require.Equal(t, plan.Change, one(t, namespace, live, nil, nil).Action, "it comes with the operator's own manifests")

	for manager, tool := range map[string]string{
		"argocd-controller": "Argo CD", "kustomize-controller": "Flux", "helm-controller": "Flux",
		"kapp-server-side-apply": "kapp", "fleetagent": "Fleet", "vdoctl": "",
	} {
		live.SetLabels(nil)
		live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager}})
		require.Equal(t, tool, plan.AppliedBy(live), manager)
	}
}

func TestReasonsOfSecretsNameNoValues(t *testing.T) {
	a := object(t, `{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {password: b2xk}}`)
	b := object(t, `{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {password: bmV3}}`)
	require.Equal(t, []string{"data.password"}, plan.Fields(plan.Diff(a, b)))
}

func TestADifferenceNamesTheContainersField(t *testing.T) {
	const template = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: s, annotations: {deprecated.daemonset.template.generation: "%d"}},
spec: {template: {spec: {containers: [{name: a, image: a}, {name: b, image: b%[1]d}], tolerations: [{key: "%[1]d"}]}}}}`
	a, b := object(t, fmt.Sprintf(template, 1)), object(t, fmt.Sprintf(template, 2))
	require.Equal(t, []string{"spec.template.spec.containers.1.image", "spec.template.spec.tolerations"}, plan.Fields(plan.Diff(a, b)))
}

func entry(group, kind, ns, name string, d matrix.Driver) inventory.Entry {
	return inventory.Entry{ID: inventory.ID{Key: inventory.Key{Group: group, Kind: kind, Namespace: ns, Name: name}, Version: "v1"}, Driver: d, UID: "uid-" + name, Release: string(d) + "@1.0.0"}
}

func liveOf(entries ...inventory.Entry) plan.Live {
	live := plan.Live{}
	for _, e := range entries {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetKind(e.Kind)
		o.SetNamespace(e.Namespace)
		o.SetName(e.Name)
		live[e.Key] = alive(o)
	}
	return live
}

func TestStepOfAnObjectThatIsNotWanted(t *testing.T) {
	account := entry("", "ServiceAccount", "n", "x", matrix.CSI)
	account.Content = "p/a"
	another := func(in *plan.Input) { in.Live[account.Key].SetUID("another") }
	trusts := func(content, untrusted string) func(*plan.Input) {
		return func(in *plan.Input) {
			in.Stages = []render.Stage{{Name: render.StageNode, Drivers: []matrix.Driver{matrix.CSI}}}
			in.Content, in.Untrusted = map[matrix.Driver]string{matrix.CSI: content}, map[matrix.Driver]string{}
			if untrusted != "" {
				in.Untrusted[matrix.CSI] = untrusted
			}
		}
	}
	gated := func(in *plan.Input) { in.Gated = map[matrix.Driver]string{matrix.CSI: "no release fits"} }
	deleted := func(in *plan.Input) { in.Live = plan.Live{} }
	for name, c := range map[string]struct {
		entry inventory.Entry
		edit  func(*plan.Input)
		want  plan.Action
	}{
		"it is as it was":       {account, func(*plan.Input) {}, plan.Prune},
		"it is gone":            {account, deleted, plan.Gone},
		"somebody made it anew": {account, another, plan.Forget},
		"with a label, which anybody can set": {account, func(in *plan.Input) {
			another(in)
			in.Live[account.Key].SetLabels(map[string]string{render.LabelManagedBy: render.ManagedBy})
		}, plan.Forget},
		"it may not be seen": {account, func(in *plan.Input) {
			deleted(in)
			in.Refused = map[inventory.Key]error{account.Key: errors.New("is forbidden")}
		}, plan.Keep},
		"its driver is held":          {account, gated, plan.Keep},
		"it is gone, and held: later": {account, func(in *plan.Input) { gated(in); deleted(in) }, plan.Keep},
		"its driver stays": {account, func(in *plan.Input) {
			in.Retained = map[matrix.Driver]plan.Retention{matrix.CSI: {Action: plan.Keep, Reason: "volumes use it"}}
		}, plan.Keep},
		"a bundle that is not trusted lacks it": {account, trusts("p/b", "why"), plan.Keep},
		"the site does not want it":             {account, trusts("p/a", "why"), plan.Prune},
		"another program does not make it":      {account, trusts("q/a", "why"), plan.Prune},
		"a bundle that is trusted lacks it":     {account, trusts("p/b", ""), plan.Prune},
		"a namespace":                           {entry("", "Namespace", "", "x", matrix.CSI), func(*plan.Input) {}, plan.Keep},
		"a kind":                                {entry("", "CustomResourceDefinition", "", "x", matrix.CSI), func(*plan.Input) {}, plan.Keep},
		"a volume":                              {entry("", "PersistentVolume", "", "x", matrix.CSI), func(*plan.Input) {}, plan.Keep},
		"a class":                               {entry("", "StorageClass", "", "x", matrix.CSI), func(*plan.Input) {}, plan.Keep},
	} {
		in := plan.Input{Inventory: inventory.Of(c.entry), Live: liveOf(c.entry)}
		c.edit(&in)
		p := plan.Make(in)
		require.Len(t, p.Steps, 1, name)
		require.Equal(t, c.want, p.Steps[0].Action, name)
		require.Equal(t, c.want == plan.Prune, p.Writes() > 0, name)
		require.True(t, c.want != plan.Keep || p.Steps[0].Reason != "", name)
	}
}

// removed are the waves in which all that may go does.
func removed(t *testing.T, inv inventory.Inventory, live plan.Live, retained map[matrix.Driver]plan.Retention) (waves [][]string) {
	for {
		wave := plan.NextWave(plan.Removal(inv, live, nil, retained).Steps)
		if len(wave) == 0 {
			return waves
		}
		var names []string
		for _, s := range wave {
			names = append(names, s.Key.String())
			require.NotEmpty(t, s.UID)
			delete(live, s.Key)
		}
		waves = append(waves, names)
	}
}

// The network goes after everything else, since what removes the rest needs it; where it stays, so do the mirror set
// and the login beside it, by which nodes get the images of pods.
func TestRemovalGoesInWavesWebhooksFirstAndLeavesNamespaces(t *testing.T) {
	all := []inventory.Entry{
		entry("", "Namespace", "", "made", matrix.CSI), entry("", "Namespace", "", "there-before", matrix.CSI),
		entry("", "ServiceAccount", "made", "sa", matrix.CSI), entry("storage.k8s.io", "CSIDriver", "", "d", matrix.CSI),
		entry("", "Secret", "made", render.PullSecret, matrix.CSI), entry("apps", "DaemonSet", "kube-system", "cpi", matrix.CPI),
		entry("apps", "Deployment", "made", "csi", matrix.CSI),
		entry("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "", "w", matrix.CSI),
		entry("rbac.authorization.k8s.io", "ClusterRole", "", "r", matrix.CSI), entry("rbac.authorization.k8s.io", "ClusterRoleBinding", "", "b", matrix.CSI),
		entry("apiextensions.k8s.io", "CustomResourceDefinition", "", "crd", matrix.SnapshotController),
		entry("config.openshift.io", "ImageDigestMirrorSet", "", "m", drivers.MirrorSet),
		entry("apps", "DaemonSet", "kube-system", "antrea", matrix.CNI), entry("", "ServiceAccount", "kube-system", "antrea", matrix.CNI),
		entry("", "Secret", "kube-system", render.PullSecret, matrix.CPI),
		entry("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "", "antrea", matrix.CNI),
	}
	inv, live := inventory.Of(all...), liveOf(all...)
	waves := [][]string{
		{"ValidatingWebhookConfiguration w"},
		{"Deployment made/csi", "DaemonSet kube-system/cpi"},
		{"Secret made/vdo-registry-pull", "Secret kube-system/vdo-registry-pull"},
		{"CSIDriver d"},
		{"ClusterRoleBinding b"},
		{"ClusterRole r"},
		{"ServiceAccount made/sa"},
		{"ValidatingWebhookConfiguration antrea"},
		{"DaemonSet kube-system/antrea"},
		{"ImageDigestMirrorSet m", "ServiceAccount kube-system/antrea"},
	}
	require.Equal(t, waves, removed(t, inv, live, nil))
	for _, e := range all[:2] {
		require.Contains(t, live, e.Key, "others may have objects in it")
	}
	stays := map[matrix.Driver]plan.Retention{matrix.CNI: {Action: plan.Forget, Reason: "stays"}}
	waves[2] = waves[2][:1]
	require.Equal(t, waves[:7], removed(t, inv, liveOf(all...), stays))
	stays[matrix.CNI] = plan.Retention{Action: plan.Keep}
	for _, s := range plan.Removal(inv, liveOf(all...), nil, stays).Steps {
		if s.Name == render.PullSecret || s.Driver == drivers.MirrorSet {
			require.Equal(t, s.Namespace != "made", s.Action == plan.Keep, s.Key)
		}
	}
}

func TestForeignWorkloadsOfAWantedDriverAreConflicts(t *testing.T) {
	place := drivers.Place{Kind: "DaemonSet", Namespace: "kube-system", Name: "vsphere-cpi", Driver: matrix.CPI}
	other := assess.Workload{Place: place, Version: "1.30.0", Helm: "vsphere-cpi"}
	desired := ours(object(t, daemonSet), "cpi@1.33.1")
	in := plan.Input{Stages: []render.Stage{{Drivers: []matrix.Driver{matrix.CPI}, Objects: []render.Object{{Unstructured: desired, Driver: matrix.CPI}}}}, Others: []assess.Workload{other}}
	p := plan.Make(in)
	require.Regexp(t, "names no CustomResourceDefinition.*helm uninstall vsphere-cpi -n kube-system", fault.HintOf(p.Conflicts()))
	require.Contains(t, p.Blocked(), matrix.CPI)
	in.Stages = nil
	require.NoError(t, plan.Make(in).Conflicts(), "what is not wanted is none of ours")
}

// A step has its cause. Of a bundle that is not trusted nothing is applied that it did not give before.
func TestTheCauseOfAStepAndWhatWaitsForTrust(t *testing.T) {
	base := ours(object(t, daemonSet), "cpi@1.33.1")
	other := base.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(other.Object, "x", "spec", "template", "spec", "dnsPolicy"))
	id := plan.IDOf(base)
	key := func(in *plan.Input) { in.Key = []byte("key") }
	entry := inventory.Entry{ID: id, Driver: matrix.CPI, UID: "uid-" + id.Name, Release: "cpi@1.33.1", Rendered: one(t, base, nil, nil, key).Rendered, Content: "p/a"}
	require.NotEqual(t, entry.Rendered, one(t, base, nil, nil, nil).Rendered, "the hash is keyed")
	before, unknown := entry, entry
	before.Release, unknown.Content = "cpi@1.32.1", "a"
	deprecated := inventory.Entry{ID: id, Driver: matrix.CPI, Release: "cpi@1.33.1", Content: "p/a"}
	for name, c := range map[string]struct {
		desired, live *unstructured.Unstructured
		known         inventory.Entry
		content       string
		cause         plan.Cause
		action        plan.Action // without trust
	}{
		"somebody changed it":                    {base, other, entry, "p/a", plan.Drift, plan.Change},
		"somebody changed what both have alike":  {base, other, entry, "p/b", plan.Drift, plan.Change},
		"somebody deleted it":                    {base, nil, entry, "p/a", plan.Drift, plan.Create},
		"the bundle is rebuilt":                  {other, base, entry, "p/b", plan.Content, plan.Wait},
		"deleted, and the bundle is rebuilt":     {other, nil, entry, "p/b", plan.Drift, plan.Wait},
		"what the bundle gave before is unknown": {other, base, unknown, "p/a", plan.Content, plan.Wait},
		"the site says something else":           {other, base, entry, "p/a", plan.Configuration, plan.Change},
		"the program is another":                 {other, base, entry, "q/a", plan.Content, plan.Change},
		"deleted, and the program is another":    {other, nil, entry, "q/a", plan.Drift, plan.Create},
		"another release":                        {base, other, before, "p/b", plan.Release, plan.Wait},
		"never applied":                          {base, nil, inventory.Entry{}, "p/a", plan.Release, plan.Wait},
		"in the place of a deprecated one":       {base, nil, deprecated, "p/a", plan.Release, plan.Wait},
	} {
		for _, untrusted := range []bool{true, false} {
			live := c.live
			if live != nil {
				live = alive(live)
			}
			s := one(t, c.desired, live, alive(c.desired), func(in *plan.Input) {
				key(in)
				in.Content = map[matrix.Driver]string{matrix.CPI: c.content}
				if untrusted {
					in.Untrusted = map[matrix.Driver]string{matrix.CPI: "it is not trusted"}
				}
				if c.known.Kind != "" {
					in.Inventory = inventory.Of(c.known)
				}
			})
			waits := untrusted && c.action == plan.Wait
			require.Equal(t, waits, s.Action == plan.Wait, name)
			require.Equal(t, waits, s.Object == nil, name)
			require.Equal(t, waits, !s.Writes(), name)
			if untrusted {
				require.Equal(t, c.action, s.Action, name)
			} else {
				require.Equal(t, c.cause, s.Cause, name)
			}
		}
	}
}

func mirrorSet() *unstructured.Unstructured {
	return render.MirrorSet(mirrorset.Entries{{Source: "up.example/a", Mirrors: []string{"m.site/vdo/up.example/a"}}}).Unstructured
}

// A set of the operator's name is the operator's where the inventory has it, or it carries the
// labels that are put on it, as after the inventory was lost. Any other is left as it is, and so
// is nothing of the drivers.
func TestAMirrorSetThatSomebodyElseMadeIsNotTakenOver(t *testing.T) {
	set := mirrorSet()
	bare := set.DeepCopy()
	bare.SetLabels(nil)
	step := func(live *unstructured.Unstructured, inv inventory.Inventory) plan.Step {
		return one(t, set, live, set, func(in *plan.Input) {
			in.Stages[0].Drivers, in.Stages[0].Objects[0].Driver = []matrix.Driver{drivers.MirrorSet}, drivers.MirrorSet
			in.Inventory = inv
		})
	}
	recorded := inventory.Of(inventory.Entry{ID: plan.IDOf(set), Driver: drivers.MirrorSet, UID: "uid-vdo-operator"})
	require.Equal(t, plan.Create, step(nil, inventory.Of()).Action)
	require.Equal(t, plan.Unchanged, step(alive(set), inventory.Of()).Action)
	require.Equal(t, plan.Change, step(alive(bare), recorded).Action, "drift of what is ours")
	s := step(alive(bare), inventory.Of())
	require.Equal(t, plan.Conflict, s.Action)
	require.Equal(t, fault.Conflict, fault.ReasonOf(s.Err))
	require.ErrorContains(t, s.Err, "the operator did not make it")
	require.Contains(t, fault.HintOf(s.Err), "set spec.openShift.mirrorSet of the VDOConfig to Check")
	require.Equal(t, map[matrix.Driver]error{drivers.MirrorSet: s.Err}, plan.Plan{Steps: []plan.Step{s}}.Blocked())
}
