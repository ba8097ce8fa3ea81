package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// earlier is the version from which the operator is upgraded: a commit of this project, which
// is moved forward with each release. What it has written is read by the one that comes.
const earlier = "629f04cac25d01223c50427f3e1f6083d84b5fa9"

// fromEarlier has the operator of the earlier version run at a site where vdoctl has installed
// today's: its kinds, its rights and its program. It tells whether the checkout has it.
func (l *job) fromEarlier() bool {
	l.t.Helper()
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
	l.t.Helper()
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
	_, hash, _ := strings.Cut(before.Status.Revision, "-")
	require.True(l.t, strings.HasPrefix(after.Status.Revision, "r-"+hash), after.Status.Revision)
	require.Len(l.t, after.Status.Revisions, len(before.Status.Revisions))
	for i := range before.Status.Revisions { // but for their names, which were numbers once
		before.Status.Revisions[i].Name = after.Status.Revisions[i].Name
	}
	require.Equal(l.t, before.Status.Revisions, after.Status.Revisions)
	for _, copied := range []string{"vdo-inventory-copy-site", "vdo-highest-serials", "vdo-highest-serials-copy"} {
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
	l.t.Helper()
	var sets appsv1.DaemonSetList
	require.NoError(l.t, l.client.List(l.ctx, &sets))
	var deployments appsv1.DeploymentList
	require.NoError(l.t, l.client.List(l.ctx, &deployments))
	all := map[string]string{}
	for _, o := range sets.Items {
		all["DaemonSet "+o.Namespace+"/"+o.Name] = fmt.Sprint(o.UID, " ", o.Generation)
	}
	for _, o := range deployments.Items {
		if o.Namespace != namespace {
			all["Deployment "+o.Namespace+"/"+o.Name] = fmt.Sprint(o.UID, " ", o.Generation)
		}
	}
	require.Len(l.t, all, 4)
	return all
}

// records are the operator's own objects, in which it finds what it has done.
func (l *job) records() map[string]types.UID {
	l.t.Helper()
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
	l.t.Helper()
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
