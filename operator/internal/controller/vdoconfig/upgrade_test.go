package vdoconfig_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

var nextDigest = "sha256:" + strings.Repeat("c", 64)

// offer has the DriverBundle accept another bundle, of these releases.
func (w *world) offer(digest string, releases ...string) {
	w.t.Helper()
	if w.store.of == nil {
		w.store.of = map[string]*bundle.Contents{}
	}
	w.store.of[digest] = bundleOf(w.t, releases...)
	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	b.Status.Digest = digest
	w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
}

func newerPair() []string { return []string{"cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.7.3"} }

// crash has no pod of csi@3.7.3 come up: an admission policy refuses its driver's image.
func (w *world) crash() { w.refuse("true") }

// refuse has those of these pods not come up of which an expression holds. It returns what lets them.
func (w *world) refuse(which string) (end func()) {
	w.t.Helper()
	return w.refuseImage(which, image.DigestOf([]byte(image.MustReference("registry.k8s.io/csi-vsphere/driver:v3.7.3").String())).String())
}

func (w *world) refuseImage(which, digest string) (end func()) {
	w.t.Helper()
	ctx := context.Background()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "crash." + w.ns}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}}}},
		Validations: []admissionv1.Validation{{Expression: "!(" + which + ") || !object.spec.containers.exists(c, c.image.contains('" + digest + "'))", Message: "it would crash"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	w.create(policy)
	w.create(binding)
	end = func() { w.discard(policy, binding) }
	w.t.Cleanup(end)
	w.until("the policy is in force", func() bool {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "probe", Labels: map[string]string{"app": "vsphere-csi-node"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x@" + digest}}}}
		err := w.Create(ctx, pod, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "it would crash")
	})
	return end
}

// discard deletes what is there of some objects.
func (w *world) discard(all ...client.Object) {
	for _, o := range all {
		require.NoError(w.t, client.IgnoreNotFound(w.Delete(context.Background(), o)))
	}
}

// advance does passes, each two minutes after the one before, until something holds.
func (w *world) advance(v *v1alpha1.VDOConfig, what string, holds func() bool) {
	w.t.Helper()
	w.until(what, func() bool {
		w.ahead += 2 * time.Minute
		w.play()
		w.look(v)
		return holds()
	})
}

func revisionNamed(v *v1alpha1.VDOConfig, name string) v1alpha1.RevisionStatus {
	for _, r := range v.Status.Revisions {
		if r.Name == name {
			return r
		}
	}
	return v1alpha1.RevisionStatus{}
}

func (w *world) image(v *appsv1.DaemonSet) string {
	get(w, v, "vmware-system-csi", "vsphere-csi-node")
	return v.Spec.Template.Spec.Containers[0].Image
}

// An upgrade whose pods do not come up is gone back from, to what is retained in the
// cluster, though every now and then a write fails and each pass is another operator's, and is not tried
// again until somebody asks.
func TestAFailedUpgradeIsRolledBackOnceThoughWritesFail(t *testing.T) {
	w, v := installed(t)
	was := v.Status.Revision
	w.advance(v, "what the test before has left is healthy again", func() bool { return revisionNamed(v, was).Outcome == string(revision.Healthy) })
	onNodes := w.image(&appsv1.DaemonSet{})
	w.crash()
	w.change(v, func() {
		v.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{HealthDeadline: metav1.Duration{Duration: 4 * time.Minute}}
	})
	w.offer(nextDigest, newerPair()...)
	stop := w.writes + 1
	w.fail = func(n int) error {
		if n < stop {
			return nil
		}
		stop = n + tier.Pick(12, 3)
		return errors.New("connection reset by peer")
	}
	failing := ""
	w.advance(v, "the failed upgrade is gone back from", func() bool {
		w.restart()
		if failing == "" && v.Status.Revision != was {
			failing = v.Status.Revision
		}
		require.Equal(t, onNodes, w.image(&appsv1.DaemonSet{}), "the pods on the nodes are those that work")
		return failing != "" && v.Status.Revision == was && revisionNamed(v, was).Outcome == string(revision.Healthy)
	})
	w.fail = nil
	w.advance(v, "all that is drivers' is as before", func() bool { return isTrue(v, "CSIReady") && driver(v, "csi").Version == "3.5.1" })
	require.Equal(t, string(revision.RolledBack), revisionNamed(v, failing).Outcome, describe(v))
	require.Contains(t, revisionNamed(v, failing).Reason, "it was not healthy after 4m0s without progress")
	require.Equal(t, "RolledBack", cond(t, v, "Upgraded").Reason)
	require.Contains(t, cond(t, v, "Ready").Message, failing+" failed")
	require.Equal(t, failing, v.Status.Candidate.Name)
	require.Equal(t, 1, strings.Count(w.events.all(), "RolledBack: Rolled back revision "+failing))

	w.restart()
	w.events.told, w.writes = nil, 0
	for range 5 {
		w.ahead += time.Hour
		w.look(v)
	}
	require.Zero(t, w.writes, "it is not tried again, and nothing is written")
	require.NotContains(t, w.events.all(), "RevisionStarted")
	w.change(v, func() { v.Annotations = map[string]string{v1alpha1.AnnotationRetry: failing} })
	w.advance(v, "it is tried once more, and gone back from again", func() bool {
		return strings.Contains(w.events.all(), "RevisionStarted: Started revision "+failing) && v.Status.Revision == was && driver(v, "csi").Version == "3.5.1"
	})
	w.events.told = nil
	for range 3 {
		w.ahead += time.Hour
		w.look(v)
	}
	require.NotContains(t, w.events.all(), "RevisionStarted", "a wish counts once")
	w.change(v, func() { v.Annotations[v1alpha1.AnnotationRetry] = failing + " again" })
	w.look(v)
	require.Contains(t, w.events.all(), "RevisionStarted: Started revision "+failing, "another one counts again")
}

// restart makes another operator, which remembers nothing but what a matrix of the same bytes says.
func (w *world) restart() {
	was := w.r
	w.r = &vdoconfig.Reconciler{Client: w.r.Client, Reader: w.r.Reader, Store: w.r.Store, Trust: w.r.Trust, Recorder: w.r.Recorder, Now: w.r.Now, Cluster: w.r.Cluster}
	w.r.Inherit(was)
}

// An upgrade waits for consent, of this revision alone, and for a window; who consented is kept.
func TestAnUpgradeWaitsForItsApprovalAndForAWindow(t *testing.T) {
	w, v := installed(t)
	was := v.Status.Revision
	w.advance(v, "what the test before has left is healthy again", func() bool { return revisionNamed(v, was).Outcome == string(revision.Healthy) })
	w.change(v, func() { v.Spec.Upgrade = v1alpha1.UpgradeManual })
	w.offer("sha256:"+strings.Repeat("b", 64), newerPair()...) // one that no other test has fail
	w.look(v)
	require.True(t, isTrue(v, "Ready"), describe(v))
	candidate := v.Status.Candidate
	require.NotNil(t, candidate, describe(v))
	require.Equal(t, "NotApproved", candidate.Reason)
	require.Equal(t, "NotApproved", cond(t, v, "Upgraded").Reason)
	require.Contains(t, planned(v), "change Deployment/"+csiController, "it is shown")
	require.Equal(t, "3.5.1", driver(v, "csi").Wanted, "and not done")

	closed := time.Now().UTC().Add(12*time.Hour).Format("4 15") + " * * *"
	w.change(v, func() {
		v.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{
			Approval: &v1alpha1.UpgradeApproval{Revision: candidate.Name, By: "alice"},
			Windows:  []v1alpha1.UpgradeWindow{{Schedule: closed, Duration: metav1.Duration{Duration: time.Hour}}}}
	})
	w.look(v)
	require.Equal(t, "WindowClosed", v.Status.Candidate.Reason, describe(v))
	require.NotNil(t, v.Status.Candidate.NotBefore)
	require.True(t, isTrue(v, "Ready"), describe(v))
	require.Equal(t, was, v.Status.Revision)

	w.ahead = time.Until(v.Status.Candidate.NotBefore.Time) - 9*time.Minute // passes are ten minutes ahead
	w.ready(v)
	require.Equal(t, "3.7.3", driver(v, "csi").Version)
	require.Equal(t, candidate.Name, v.Status.Revision)
	require.Equal(t, "alice", revisionNamed(v, candidate.Name).ApprovedBy)
	require.NotNil(t, revisionNamed(v, candidate.Name).ApprovedAt)
	for _, said := range []string{"approved by alice", "UpgradeWaits: Delayed upgrade to revision " + candidate.Name + " (NotApproved)", "(WindowClosed)"} {
		require.Contains(t, w.events.all(), said)
	}
	require.Nil(t, v.Status.Candidate)
	w.advance(v, "it is healthy", func() bool { return revisionNamed(v, candidate.Name).Outcome == string(revision.Healthy) })
	kept := get(w, &corev1.ConfigMap{}, w.ns, revision.ConfigMapName(v.Name, candidate.Name))
	require.True(t, *kept.Immutable)
	m, err := revision.ParseManifest(kept.Data[revision.DataKey])
	require.NoError(t, err)
	require.Equal(t, candidate.Name, m.Revision.Name())
	require.False(t, gone(w, &corev1.ConfigMap{}, w.ns, revision.ConfigMapName(v.Name, was)), "what can be gone back to is retained")
}
