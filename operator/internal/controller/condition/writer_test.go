package condition_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
)

func world(t *testing.T) (client.Client, *v1alpha1.VsphereCloudConfig) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	obj := &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Name: "vc", Namespace: "ns"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(obj).WithStatusSubresource(obj).Build()
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
	return c, obj
}

func TestAStatusIsWrittenAndToldOnce(t *testing.T) {
	c, before := world(t)
	rec := events.NewFakeRecorder(10)
	w := condition.Writer{Client: c, Recorder: rec}

	after := before.DeepCopy()
	condition.Fault(&after.Status.Conditions, 1, faultOf(fault.Unauthorized))
	require.NoError(t, w.Write(t.Context(), before, after))
	require.Equal(t, "Warning Unauthorized connect to vc.site: why (do this)", <-rec.Events)
	require.NotEqual(t, before.ResourceVersion, after.ResourceVersion)

	same := after.DeepCopy()
	condition.Fault(&same.Status.Conditions, 1, faultOf(fault.Unauthorized))
	require.NoError(t, w.Write(t.Context(), after, same))
	require.Equal(t, after.ResourceVersion, same.ResourceVersion, "nothing changed, nothing was written")

	quiet := after.DeepCopy()
	quiet.Status.User = "someone"
	require.NoError(t, w.Write(t.Context(), after, quiet))
	require.NotEqual(t, after.ResourceVersion, quiet.ResourceVersion)
	require.Empty(t, rec.Events, "Ready tells nothing new")

	mended := quiet.DeepCopy()
	condition.Ready(&mended.Status.Conditions, 1, "100 % fine")
	require.NoError(t, w.Write(t.Context(), quiet, mended))
	require.Equal(t, "Normal Succeeded 100 % fine", <-rec.Events)
}

// A roll-out over thousands of nodes is told when it begins, waits for something else, and
// ends; in a fault each number counts.
func TestThatARollOutGoesOnIsNotTold(t *testing.T) {
	c, now := world(t)
	rec := events.NewFakeRecorder(10)
	w := condition.Writer{Client: c, Recorder: rec}
	write := func(report condition.Report) {
		after := now.DeepCopy()
		report.Set(&after.Status.Conditions, 1, time.Now())
		require.NoError(t, w.Write(t.Context(), now, after))
		require.NotEqual(t, now.ResourceVersion, after.ResourceVersion, "it is written all the same")
		now = after
	}
	for _, s := range []struct {
		state         condition.State
		message, told string
	}{
		{condition.StateProgressing, "DaemonSet x has 1 of 5000 pods updated", "Normal Progressing DaemonSet x has 1 of 5000 pods updated"},
		{condition.StateProgressing, "DaemonSet x has 2 of 5000 pods updated", ""},
		{condition.StateProgressing, "DaemonSet x has 3 of 5000 pods updated, waiting for node a.b-1", ""},
		{condition.StateProgressing, "DaemonSet x has 4 of 5000 pods updated, waiting for 2 nodes (a, b)", ""},
		{condition.StateProgressing, "DaemonSet x has 5001 of 5001 pods updated", ""},
		{condition.StateProgressing, "DaemonSet x has 4998 of 5001 pods available", "Normal Progressing DaemonSet x has 4998 of 5001 pods available"},
		{condition.StateProgressing, "DaemonSet y has 4998 of 5001 pods available", "Normal Progressing DaemonSet y has 4998 of 5001 pods available"},
		{condition.StateProgressing, "5 of 9 nodes (a, b, c, and 2 more) wait for x", "Normal Progressing 5 of 9 nodes (a, b, c, and 2 more) wait for x"},
		{condition.StateProgressing, "4 of 9 nodes (b, c, d, and 1 more) wait for x", ""},
		{condition.StateProgressing, "4 of 9 nodes (b, c, d, and 1 more) wait for y", "Normal Progressing 4 of 9 nodes (b, c, d, and 1 more) wait for y"},
		{condition.StateFault, "1 of 9 nodes (b) is broken", "Warning Incomplete 1 of 9 nodes (b) is broken"},
		{condition.StateFault, "1 of 9 nodes (c) is broken", "Warning Incomplete 1 of 9 nodes (c) is broken"},
		{condition.StateReady, "cpi@1; 9 nodes", "Normal Succeeded cpi@1; 9 nodes"},
	} {
		write(condition.Report{Phase: condition.Phase{State: s.state, Message: s.message, Err: &fault.Error{Reason: fault.Incomplete, Err: errors.New(s.message)}}})
		if s.told == "" {
			require.Empty(t, rec.Events, s.message)
			continue
		}
		require.Equal(t, s.told, <-rec.Events)
	}
}

func TestAStatusOfAnOlderObjectIsRefused(t *testing.T) {
	c, before := world(t)
	rec := events.NewFakeRecorder(10)
	w := condition.Writer{Client: c, Recorder: rec}
	changed := before.DeepCopy()
	changed.Spec.VcIP = "other"
	require.NoError(t, c.Update(t.Context(), changed))

	after := before.DeepCopy()
	condition.Ready(&after.Status.Conditions, 1, "ok")
	err := w.Write(t.Context(), before, after)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%v", err)
	require.Empty(t, rec.Events)
}

func TestANoteIsCutToWhatAnEventTakes(t *testing.T) {
	c, before := world(t)
	rec := events.NewFakeRecorder(10)
	after := before.DeepCopy()
	condition.Ready(&after.Status.Conditions, 1, strings.Repeat("x", 5000))
	require.NoError(t, condition.Writer{Client: c, Recorder: rec}.Write(t.Context(), before, after))
	require.LessOrEqual(t, len(strings.TrimPrefix(<-rec.Events, "Normal Succeeded ")), 1024)
}

// A message that is no UTF-8 is kept by the API server as something else: it has to be
// made UTF-8 before, or each pass writes and tells of it again.
func TestAMessageThatIsNoUTF8IsWrittenOnce(t *testing.T) {
	c, before := world(t)
	rec := events.NewFakeRecorder(10)
	w := condition.Writer{Client: c, Recorder: rec}
	pass := func(before *v1alpha1.VsphereCloudConfig) *v1alpha1.VsphereCloudConfig {
		after := before.DeepCopy()
		condition.Ready(&after.Status.Conditions, 1, "it says \xff\xfe and \xc3")
		condition.Report{Parts: []metav1.Condition{condition.Pending("Part", "\xff")}, Phase: condition.Phase{State: condition.StateReady, Message: "it says \xff\xfe and \xc3"}}.
			Set(&after.Status.Conditions, 1, time.Now())
		require.NoError(t, w.Write(t.Context(), before, after))
		kept := &v1alpha1.VsphereCloudConfig{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(after), kept))
		return kept
	}
	first := pass(before)
	require.Equal(t, "Normal Succeeded it says \uFFFD and \uFFFD", <-rec.Events)
	second := pass(first)
	require.Equal(t, first.ResourceVersion, second.ResourceVersion, "nothing changed, nothing was written")
	require.Empty(t, rec.Events)
}
