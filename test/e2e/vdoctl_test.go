package e2e

import (
	"encoding/json"
	"os"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

// vdoctl runs vdoctl as the cluster's administrator, and returns what it prints.
func (l *job) vdoctl(args ...string) string {
	l.t.Helper()
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
	out := l.vdoctl("deploy", l.reference("stable"), "--key", "vdo.pub", "--ca-file", "mirror-ca.crt", "--with-access", "--yes")
	for _, want := range []string{"(signed by vdo.pub)", "created    Deployment " + namespace + "/vdo-operator", "created    ConfigMap " + namespace + "/vdo-trust", "the operator runs; next: `vdoctl configure`"} {
		require.Contains(l.t, out, want)
	}
}

// revisions are what vdoctl says of them.
type revisions struct {
	InForce   string
	Revisions []struct{ Name, Releases, Outcome, ApprovedBy string }
	Candidate *struct{ Name, Reason, ToDo string }
}

func (l *job) revisions() (r revisions) {
	l.t.Helper()
	require.NoError(l.t, json.Unmarshal([]byte(l.vdoctl("upgrade", "list", "-o", "json")), &r))
	return r
}

// approvedAndTakenBack upgrades once a person consents to it by vdoctl, and goes back by
// vdoctl; then what that has pinned is taken out.
func (l *job) approvedAndTakenBack() {
	l.t.Helper()
	_, before := l.workloads()
	first := l.revisions()
	require.Len(l.t, first.Revisions, 1)
	require.Equal(l.t, "Healthy", first.Revisions[0].Outcome)
	l.spec(&v1alpha1.VDOConfig{}, `{"upgrade":"Manual"}`)
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
	require.Equal(l.t, "vdoctl upgrade approve "+name, waits.Candidate.ToDo)
	require.Equal(l.t, first.InForce, waits.InForce)

	out := l.vdoctl("upgrade", "approve", name)
	require.Contains(l.t, out, "VDOConfig site: spec.upgradePolicy.approval: "+name+" by admin")
	l.installed("site", "1.33.1", "3.7.3")
	l.eventually("the upgrade is healthy", func() string {
		if r := l.revisions(); r.InForce != name || r.Revisions[0].Outcome != "Healthy" || r.Revisions[0].ApprovedBy != "admin" {
			return l.vdoctl("upgrade", "list")
		}
		return ""
	})

	// The mirror is not needed: what is gone back to is in the cluster.
	l.site.Mirror.Fail(registry.Fault{Match: registry.Match{Path: "/"}, Reset: true})
	defer l.site.Mirror.Heal()
	out = l.vdoctl("upgrade", "rollback", "--yes")
	require.Contains(l.t, out, "VDOConfig site: spec.drivers[csi].version: 3.5.1")
	require.Contains(l.t, out, "DriverBundle site: spec.reference: \""+l.site.Mirror.Host+"/vdo/drivers@sha256:")
	l.installed("site", "1.33.1", "3.5.1")
	l.eventually("what was gone back to is healthy", func() string {
		if r := l.revisions(); r.InForce != first.InForce {
			return l.vdoctl("upgrade", "list")
		}
		return ""
	})
	_, after := l.workloads()
	require.Equal(l.t, before, after, "the same DaemonSets and Deployments, changed in place")
	bundle := &v1alpha1.DriverBundle{}
	require.NoError(l.t, l.client.Get(l.ctx, client.ObjectKey{Namespace: namespace, Name: "site"}, bundle))
	ready := meta.FindStatusCondition(bundle.Status.Conditions, v1alpha1.ConditionReady)
	require.NotNil(l.t, ready)
	require.Equal(l.t, "Unreachable", ready.Reason)
	require.Contains(l.t, ready.Message, "the bundle is taken from the copy in the cluster")
	l.site.Mirror.Heal()

	l.spec(&v1alpha1.VDOConfig{}, `{"upgrade":null,"drivers":null,"upgradePolicy":null}`)
	l.spec(&v1alpha1.DriverBundle{}, `{"reference":"`+l.reference("stable")+`","acceptOlder":null}`)
	l.installed("site", "1.33.1", "3.5.1")
}

// fetchedAsPlanned asks vdoctl for a plan that the bundle in the mirror does not serve, and
// runs the commands that it prints for that: as they are, but for what a person fills in, and
// with the flags that lead to the stand-in for the internet and to the mirror's authority. The
// bundle that comes of it is what was asked for.
func (l *job) fetchedAsPlanned(tag string, wish ...string) {
	l.t.Helper()
	sh := l.kubectl()
	out, err := sh.Run(l.ctx, "bash", "-ec", "vdoctl plan -o json "+strings.Join(wish, " "))
	var exit *shell.Exit
	require.ErrorAs(l.t, err, &exit, "nothing would be held back: %s", out)
	require.Equal(l.t, 8, exit.Code, exit)
	var plan struct{ Fetch []string }
	require.NoError(l.t, json.Unmarshal([]byte(out), &plan))
	require.Len(l.t, plan.Fetch, 3, out)
	filled := strings.NewReplacer(" KEY ", " vdo.key ", " KEY.pub", " vdo.pub", ":TAG", ":"+tag)
	connected := *l.connected
	connected.Env = append(slices.Clone(connected.Env), "PATH="+bin+":"+os.Getenv("PATH"))
	for _, command := range plan.Fetch[:2] {
		l.run(&connected, "bash -ec", filled.Replace(command)+" "+strings.Join(l.upstream.Flags(), " "))
	}
	l.carry("drivers.tar")
	require.NoError(l.t, os.Remove(l.path("connected/drivers.tar")))
	l.run(sh, "bash -ec", filled.Replace(plan.Fetch[2])+" --ca-file mirror-ca.crt")
	l.vdoctl(append([]string{"plan", "--bundle", l.reference(tag)}, wish...)...)
}

// deletedByVdoctl has vdoctl take everything away while the operator runs: the drivers go by
// the operator, and the cluster is as it was.
func (l *job) deletedByVdoctl() {
	l.t.Helper()
	images, _ := l.workloads()
	require.NotEmpty(l.t, images)
	out := l.vdoctl("delete", "--all", "--dry-run")
	require.Contains(l.t, out, "drivers\n  VDOConfig "+namespace+"/site\n")
	require.Contains(l.t, out, "Nothing was changed: --dry-run.")
	l.installed("site", "1.34.0", "3.7.3")

	out = l.vdoctl("delete", "--all", "--yes")
	for _, stage := range []string{
		"drivers\n  VDOConfig " + namespace + "/site\n", "configuration\n", "  VsphereCloudConfig " + namespace + "/site\n", "  DriverBundle " + namespace + "/site\n",
		"operator\n", "  Deployment " + namespace + "/vdo-operator\n", "namespaces\n", "  Namespace " + namespace + "\n", "crds\n",
	} {
		require.Contains(l.t, out, stage)
	}
	_, stays, _ := strings.Cut(out, "\nstays\n")
	for line := range strings.Lines(stays) { // what volumes and snapshots are found by
		require.Regexp(l.t, `^  (csinodetopologies\.cns\.vmware\.com|volumesnapshot[a-z]+\.snapshot\.storage\.k8s\.io): .*kubectl delete crd `, line)
	}
	l.stopOperator() // as its Deployment is gone
	left, _ := l.workloads()
	require.Empty(l.t, left, "the drivers are removed")
	l.nothingOfTheOperatorIsLeft()
	for _, ns := range []string{namespace, csiNamespace} {
		err := l.client.Get(l.ctx, client.ObjectKey{Name: ns}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		require.True(l.t, apierrors.IsNotFound(err), "%s: %v", ns, err)
	}
}
