package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/site"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// The operator acts on changes of a site without being asked: here no resource is annotated. What it
// watches has to reach it as an event, since the interval of the VDOConfig is an hour; it looks at the
// mirror and the vCenter every ten seconds. Each step is about another watch, and starts from what the
// one before has left. Tests of the controllers cover what the operator makes of a change.
//
// It begins and ends with what a person does: vdoctl installs the operator, consents to an
// upgrade, goes back from it, and takes everything away, beside the operator that runs. The
// drivers are installed by the operator of an earlier version, which is upgraded first.
func TestReactions(t *testing.T) {
	tier.Later(t, tier.All)
	l := newLine(t, true, "cpi@1.33.1", "cpi@1.34.0", "csi@3.5.1", "csi@3.7.3", "snapshot-controller@8.2.0")
	l.deployed("cpi@1.33.1", "csi@3.5.1")
	upgraded := l.fromEarlier()
	l.beside()
	l.applyYAML(l.site.Resources(site.ResourceOptions{Namespace: namespace, Reference: l.reference("stable")}))
	l.spec(&v1alpha1.DriverBundle{}, `{"interval":"10s"}`)
	l.spec(&v1alpha1.VsphereCloudConfig{}, `{"interval":"10s"}`)
	l.spec(&v1alpha1.VDOConfig{}, `{"interval":"1h"}`)
	l.installed("site", "1.33.1", "3.5.1")
	if upgraded {
		l.operatorIsUpgraded()
	}

	l.approvedAndTakenBack()
	l.movedTag()
	l.rotatedCredentials()
	l.newNode()
	require.Zero(t, l.strayed.Load(), "connections left the site")
	l.noSecretLeaks()
	l.deletedByVdoctl()
}

// spec merges into the spec of the resource named site.
func (l *job) spec(o client.Object, patch string) {
	o.SetName("site")
	o.SetNamespace(namespace)
	require.NoError(l.t, l.client.Patch(l.ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+patch+`}`))))
}

// movedTag pushes a bundle under another name, which is nothing to the operator, and moves
// the tag that it follows. The bundle is fetched as vdoctl says for the next Kubernetes.
func (l *job) movedTag() {
	before := l.acceptedDigest()
	l.fetchedAsPlanned("next", "--k8s", "1.34")
	l.run(l.isolated, "vdo-bundle push drivers.tar "+l.reference("next")+" --ca-file mirror-ca.crt --layout paths")
	require.Equal(l.t, before, l.acceptedDigest())
	next := must.Have(l.site.Mirror.Retag("vdo/drivers", "next", "stable"))(l.t)
	l.installed("site", "1.33.1", "3.7.3")
	require.Equal(l.t, next, l.acceptedDigest())
}

// rotatedCredentials changes the password on both sides. The drivers get it once the vCenter
// has let it in; the old one is tried once at most after it ceased to be right.
func (l *job) rotatedCredentials() {
	const password = "An-other Right-Pass word#2"
	l.site.VCenter.SetPassword(vcenter.Admin.Username, password)
	secret := &corev1.Secret{ObjectMeta: l.named("vcenter-account")}
	require.NoError(l.t, l.client.Patch(l.ctx, secret, client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
		`{"stringData":{"password":%q}}`, password))))
	l.eventually("the drivers' configuration has it", func() string {
		for _, key := range []client.ObjectKey{{Namespace: csiNamespace, Name: "vsphere-config-secret"},
			{Namespace: "kube-system", Name: "vsphere-cloud-secret"}} {
			var s corev1.Secret
			if err := l.client.Get(l.ctx, key, &s); err != nil {
				return err.Error()
			}
			has := func(v []byte) bool { return bytes.Contains(v, []byte(password)) }
			if !slices.ContainsFunc(slices.Collect(maps.Values(s.Data)), has) {
				return key.String() + " has not"
			}
		}
		return ""
	})
	require.LessOrEqual(l.t, l.site.VCenter.Refused(vcenter.Admin.Username), 1)
	l.installed("site", "1.33.1", "3.7.3")
}

// newNode joins a further virtual machine.
func (l *job) newNode() {
	vms := must.Have(l.site.VCenter.VMs(l.ctx, site.Datacenter))(l.t)
	const joins = "worker-3"
	require.NoError(l.t, l.site.VCenter.Ready(vms[len(l.site.Machines)].Path, joins))
	require.NoError(l.t, l.site.Cluster.AddNode(l.ctx, cluster.Node{Name: joins,
		SystemUUID: vms[len(l.site.Machines)].UUID}))
	l.eventually("the node is initialised and registered, and counts", func() string {
		var node corev1.Node
		var plugin storagev1.CSINode
		var config v1alpha1.VDOConfig
		at := client.ObjectKey{Name: joins}
		if err := errors.Join(l.client.Get(l.ctx, at, &node), l.client.Get(l.ctx, at, &plugin),
			l.client.Get(l.ctx, client.ObjectKey{Namespace: namespace, Name: "site"}, &config)); err != nil {
			return err.Error()
		}
		if !strings.HasPrefix(node.Spec.ProviderID, "vsphere://") || len(plugin.Spec.Drivers) != 1 || config.Status.NodesReady != "4/4" {
			return fmt.Sprintf("providerID %q, drivers %v, ready %s", node.Spec.ProviderID, plugin.Spec.Drivers, config.Status.NodesReady)
		}
		return ""
	})
	l.installed("site", "1.33.1", "3.7.3")
}

// earlier is the version from which the operator is upgraded: a commit of this project, which
// is moved forward with each release. What it has written is read by the one that comes.
const earlier = "629f04cac25d01223c50427f3e1f6083d84b5fa9"

// fromEarlier has the operator of the earlier version run at a site where vdoctl has installed
// today's: its kinds, its rights and its program. It tells whether the checkout has it.
func (l *job) fromEarlier() bool {
	err := toolchain.Earlier(l.ctx, earlier, l.path("earlier"), "./operator/cmd/vdo-operator")
	if errors.Is(err, toolchain.ErrNoHistory) {
		l.t.Run("an operator of an earlier version that is upgraded", func(t *testing.T) {
			t.Skip(err)
		})
		return false
	}
	require.NoError(l.t, err)
	l.manifests("replace --save-config", l.path("earlier"))
	l.program = l.path("earlier/bin/test/vdo-operator")
	return true
}

// manifests applies, or the like, what the operator of a version is installed by.
func (l *job) manifests(how, root string) {
	l.t.Helper()
	words := "kubectl " + how
	for _, name := range []string{"crds", "namespaces.yaml", "rbac.yaml"} {
		words += " -f " + filepath.Join(root, "deploy", name)
	}
	l.run(l.kubectl(), "bash -ec", words)
}

// operatorIsUpgraded has today's operator come after the earlier one, by the commands of
// deploy/docs/install.md, "Upgrade the operator": what runs stays as it is, Ready stays True, and
// what was recorded is known. The one that came looks after all of it.
func (l *job) operatorIsUpgraded() {
	before := l.installed("site", "1.33.1", "3.5.1")
	require.Len(l.t, before.Status.Revisions, 1)
	require.Equal(l.t, "Healthy", before.Status.Revisions[0].Outcome)
	made, records, warned := l.made(), l.records(), l.warnings()
	l.eventually("no vCenter is being asked, of which the next operator would not know the answer", func() string {
		var all v1alpha1.VsphereCloudConfigList
		if err := l.client.List(l.ctx, &all); err != nil {
			return err.Error()
		}
		for _, v := range all.Items {
			if v.Status.AskedWith != "" {
				return v.Name + " is"
			}
		}
		return ""
	})
	l.stopOperator()
	l.manifests("apply", toolchain.Root())
	l.program = "vdo-operator"
	l.startOperator()

	var after *v1alpha1.VDOConfig
	for range 2 { // passes
		l.ask(&v1alpha1.VDOConfig{}, "site")
		l.eventually("today's operator has done a pass", func() string {
			after = l.installed("site", "1.33.1", "3.5.1")
			if after.Status.HandledReconcileAt != fmt.Sprint(l.passes) {
				return "the last one is " + after.Status.HandledReconcileAt
			}
			return ""
		})
	}
	require.Equal(l.t, made, l.made(), "DaemonSets and Deployments are the same, and were not changed")
	require.Equal(l.t, readySince(before), readySince(after), "Ready was True all the time")
	was, groups, releases := before.Status.Revisions[0], []string{}, []string{}
	for _, r := range after.Status.Revisions { // one of all drivers is one of each group
		require.True(l.t, r.Current, r.Name)
		groups, releases = append(groups, r.Group), append(releases, r.Releases)
		r.Name, r.Group, r.Current, r.Releases = was.Name, "", false, was.Releases
		require.Equal(l.t, was, r)
	}
	require.Equal(l.t, []string{"cpi", "csi"}, groups)
	require.Equal(l.t, was.Releases, strings.Join(releases, ", "))
	for _, copied := range []string{"vdo-highest-serials", "vdo-highest-serials-copy"} {
		require.NotContains(l.t, l.records(), copied, "it is taken over")
		delete(records, copied)
	}
	require.Subset(l.t, l.records(), records, "what was recorded is there")
	require.Equal(l.t, warned, l.warnings())

	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: csiNamespace, Name: "vsphere-csi-node"}}
	require.NoError(l.t, l.client.Get(l.ctx, client.ObjectKeyFromObject(set), set))
	right := set.Spec.Template
	spoiled := set.DeepCopy()
	spoiled.Spec.Template.Spec.Containers[0].Image = "other.example/image:1"
	require.NoError(l.t, l.client.Update(l.ctx, spoiled))
	l.eventually("the drift is repaired", func() string {
		require.NoError(l.t, l.client.Get(l.ctx, client.ObjectKeyFromObject(set), set))
		if image := set.Spec.Template.Spec.Containers[0].Image; image != right.Spec.Containers[0].Image {
			return image
		}
		return ""
	})
	require.Equal(l.t, right, set.Spec.Template)
	l.installed("site", "1.33.1", "3.5.1")
}

// made is what the drivers' DaemonSets and Deployments are: a generation is one more with each
// change of what they are to be.
func (l *job) made() map[string]string {
	all := map[string]string{}
	l.eachWorkload(func(o client.Object, _ corev1.PodSpec) {
		all[o.GetNamespace()+"/"+o.GetName()] = fmt.Sprint(o.GetUID(), " ", o.GetGeneration())
	})
	require.Len(l.t, all, 4)
	return all
}

// records are the operator's own objects, in which it finds what it has done.
func (l *job) records() map[string]types.UID {
	var maps corev1.ConfigMapList
	require.NoError(l.t, l.client.List(l.ctx, &maps, client.InNamespace(namespace)))
	all := map[string]types.UID{}
	for _, o := range maps.Items {
		all[o.Name] = o.UID
	}
	return all
}

// warnings are the events of things that are not as they should be.
func (l *job) warnings() map[string]string {
	var events corev1.EventList
	require.NoError(l.t, l.client.List(l.ctx, &events, client.InNamespace(namespace)))
	all := map[string]string{}
	for _, e := range events.Items {
		if e.Type == corev1.EventTypeWarning {
			all[e.Name] = e.ResourceVersion + " " + e.Reason + ": " + e.Message
		}
	}
	return all
}

// readySince is since when Ready is what it is.
func readySince(v *v1alpha1.VDOConfig) string {
	c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
	return fmt.Sprint(c.Status, " ", c.LastTransitionTime.UTC())
}

// vdoctl runs vdoctl as the cluster's administrator, and returns what it prints.
func (l *job) vdoctl(args ...string) string {
	sh := l.kubectl()
	sh.Path = l.isolated.Path
	out, err := sh.Run(l.ctx, "vdoctl", args...)
	require.NoError(l.t, err, "vdoctl %s\n%s", strings.Join(args, " "), out)
	return out
}

// deployed has vdoctl install the operator from the mirror. Its Deployment's pod is admitted by
// the namespace, which is a restricted one; the program that it would run is to be run
// [job.beside] the cluster, with the account that vdoctl has given its rights.
func (l *job) deployed(releases ...string) {
	l.t.Helper()
	l.bundleWithOperator(releases...)
	l.run(l.isolated, "vdo-bundle push drivers.tar "+l.reference("stable")+" --ca-file mirror-ca.crt")
	l.vdoctl("deploy", l.reference("stable"), "--key", "vdo.pub", "--ca-file", "mirror-ca.crt", "--with-access", "--yes")
}

// revisions are what vdoctl says of them.
type revisions struct {
	Revisions []v1alpha1.RevisionStatus
	Candidate *struct{ Name, Reason string }
}

// csi is the storage driver's current one.
func (r revisions) csi() v1alpha1.RevisionStatus {
	for _, of := range r.Revisions {
		if of.Current && of.Group == "csi" {
			return of
		}
	}
	return v1alpha1.RevisionStatus{}
}

func (l *job) revisions() (r revisions) {
	require.NoError(l.t, json.Unmarshal([]byte(l.vdoctl("upgrade", "list", "-o", "json")), &r))
	return r
}

// approvedAndTakenBack upgrades once a person consents to it by vdoctl, one node first, and goes
// back by vdoctl; then what that has pinned is taken out.
func (l *job) approvedAndTakenBack() {
	_, before := l.workloads()
	first := l.revisions().csi()
	require.Equal(l.t, "Healthy", first.Outcome)
	l.spec(&v1alpha1.VDOConfig{}, `{"upgrade":"Manual","upgradePolicy":{"canary":{"soak":"1s",
		"nodeSelector":{"matchLabels":{"kubernetes.io/hostname":"worker-1"}}}}}`)
	l.deliver("two", "vdo", "cpi@1.33.1", "csi@3.7.3")
	l.spec(&v1alpha1.DriverBundle{}, `{"reference":"`+l.reference("two")+`"}`)
	var waits revisions
	l.eventually("the upgrade waits for somebody's consent", func() string {
		if waits = l.revisions(); waits.Candidate == nil || waits.Candidate.Reason != "NotApproved" {
			return l.vdoctl("upgrade", "list")
		}
		return ""
	})
	name := waits.Candidate.Name
	require.Equal(l.t, first.Name, waits.csi().Name)

	l.vdoctl("upgrade", "approve", name)
	l.installed("site", "1.33.1", "3.7.3")
	l.eventually("the upgrade is healthy", func() string {
		r := l.revisions().csi()
		if !strings.Contains(r.Releases, "csi@3.7.3") || r.Outcome != "Healthy" || r.ApprovedBy != "admin" {
			return l.vdoctl("upgrade", "list")
		}
		return ""
	})

	var events corev1.EventList
	require.NoError(l.t, l.client.List(l.ctx, &events, client.InNamespace(namespace)))
	isCanary := func(e corev1.Event) bool { return e.Reason == "CanaryHealthy" }
	require.True(l.t, slices.ContainsFunc(events.Items, isCanary), "it came to one node first")

	// The mirror is not needed: what is gone back to is in the cluster.
	l.site.Mirror.Fail(registry.Fault{Match: registry.Match{Path: "/"}, Reset: true})
	defer l.site.Mirror.Heal()
	out := l.vdoctl("upgrade", "rollback", "--yes")
	require.Contains(l.t, out, "spec.drivers[csi].version: 3.5.1")
	require.Contains(l.t, out, " -> "+l.site.Mirror.Host+"/vdo/drivers@sha256:")
	l.installed("site", "1.33.1", "3.5.1")
	l.eventually("what was gone back to is healthy", func() string {
		if r := l.revisions().csi(); r.Name != first.Name {
			return l.vdoctl("upgrade", "list")
		}
		return ""
	})
	_, after := l.workloads()
	require.Equal(l.t, before, after, "the same DaemonSets and Deployments, changed in place")
	l.says(&v1alpha1.DriverBundle{}, v1alpha1.ConditionReady, "/Unreachable: ", "the bundle is taken from the copy in the cluster")
	l.site.Mirror.Heal()

	l.spec(&v1alpha1.VDOConfig{}, `{"upgrade":null,"drivers":null,"upgradePolicy":null}`)
	l.spec(&v1alpha1.DriverBundle{}, `{"reference":"`+l.reference("stable")+`","acceptOlder":null}`)
	l.installed("site", "1.33.1", "3.5.1")
}

// fetchedAsPlanned asks vdoctl for a plan that the bundle in the mirror does not serve, and
// runs the commands that it prints for that: as they are, but for what a person fills in, and
// with the flags that lead to the stand-in for the internet. The bundle that comes of it is what was requested.
func (l *job) fetchedAsPlanned(tag string, wish ...string) {
	sh := l.kubectl()
	out, err := sh.Run(l.ctx, "bash", "-ec", "vdoctl plan -o json "+strings.Join(wish, " "))
	var exit *shell.Exit
	require.ErrorAs(l.t, err, &exit, "nothing would be held back: %s", out)
	require.Equal(l.t, 8, exit.Code, exit)
	var plan struct{ Fetch []string }
	require.NoError(l.t, json.Unmarshal([]byte(out), &plan))
	require.Len(l.t, plan.Fetch, 3, out)
	filled := strings.NewReplacer(" KEY ", " vdo.key ", " KEY.pub", " vdo.pub", " CA.crt", " mirror-ca.crt",
		" IMAGE ", " "+operatorImage+" ", l.reference("stable"), l.reference(tag))
	connected := *l.connected
	connected.Env = append(slices.Clone(connected.Env), "PATH="+bin+":"+os.Getenv("PATH"))
	require.NoError(l.t, os.Remove(l.path("connected/lock.yaml")))
	for _, command := range plan.Fetch[:2] {
		l.run(&connected, "bash -ec", filled.Replace(command)+" "+strings.Join(l.upstream.Flags(), " "))
	}
	l.carry("drivers.tar")
	l.run(sh, "bash -ec", filled.Replace(plan.Fetch[2]))
	l.eventually("nothing blocks the fetched bundle", func() string { // the checks for it may still run
		out, err := sh.Run(l.ctx, "bash", "-ec", "vdoctl plan --bundle "+l.reference(tag)+" "+strings.Join(wish, " "))
		if err != nil {
			return out
		}
		return ""
	})
}

// deletedByVdoctl has vdoctl take everything away while the operator runs: the drivers go by
// the operator, and the cluster is as it was.
func (l *job) deletedByVdoctl() {
	images, _ := l.workloads()
	require.NotEmpty(l.t, images)
	out := l.vdoctl("delete", "--all", "--yes")
	for _, stage := range []string{
		"drivers\n  VDOConfig " + namespace + "/site\n", "configuration\n", "  VsphereCloudConfig " + namespace + "/site\n", "  DriverBundle " + namespace + "/site\n",
		"operator\n", "  Deployment " + namespace + "/vdo-operator\n", "crds\n",
	} {
		require.Contains(l.t, out, stage)
	}
	_, stays, _ := strings.Cut(out, "\nstays\n")
	last := "kubectl delete namespace " + namespace
	require.Contains(l.t, stays, "`"+last+"`\n")
	l.stopOperator() // as its Deployment is gone
	left, _ := l.workloads()
	require.Empty(l.t, left, "the drivers are removed")
	l.run(l.kubectl(), last)
	l.nothingOfTheOperatorIsLeft()
}
