package vdoctl

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// installed is what a status is of; all of it is ready.
type installed struct {
	operator *appsv1.Deployment
	bundle   *v1alpha1.DriverBundle
	vcenter  *v1alpha1.VsphereCloudConfig
	config   *v1alpha1.VDOConfig
	more     []client.Object
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func newInstalled() *installed {
	ready := []metav1.Condition{condition("Ready", "True", "Succeeded", "")}
	s := &installed{
		operator: &appsv1.Deployment{ObjectMeta: metaOf("vdo", "vdo-operator")},
		bundle:   &v1alpha1.DriverBundle{ObjectMeta: metaOf("vdo", "drivers")},
		vcenter:  &v1alpha1.VsphereCloudConfig{ObjectMeta: metaOf("vdo", "east")},
		config:   &v1alpha1.VDOConfig{ObjectMeta: metaOf("vdo", "vdo")},
	}
	s.operator.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.site/vdo/operator:1.2.3"}}
	s.operator.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	s.vcenter.Spec.VcIP = "vc.site"
	s.bundle.Status.Conditions, s.vcenter.Status.Conditions, s.config.Status.Conditions = ready, ready, ready
	s.config.Status.Drivers = []v1alpha1.DriverStatus{{Driver: "csi", Version: "3.5.1", Ready: true}}
	return s
}

func (s *installed) client(t *testing.T) client.WithWatch {
	t.Helper()
	all := append([]client.Object{s.bundle, s.vcenter}, s.more...)
	if s.operator != nil {
		all = append(all, s.operator)
	}
	if s.config != nil {
		all = append(all, s.config)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).Build()
}

func statusTo(out io.Writer) *statusOptions {
	o := &statusOptions{app: &app{out: out, now: time.Now, getenv: func(string) (string, bool) { return "", false }}}
	o.cluster.namespace = "vdo"
	return o
}

func TestDescribeExplainsWhatIsNotReady(t *testing.T) {
	upgraded := func(status metav1.ConditionStatus, ready, reason string) func(*installed) {
		return func(s *installed) {
			s.config.Status.Conditions = []metav1.Condition{
				condition("Upgraded", status, reason, "because of it"), condition("Ready", metav1.ConditionStatus(ready), "Says", "")}
		}
	}
	also := func(kind string, status metav1.ConditionStatus) func(*installed) {
		return func(s *installed) {
			st := &s.config.Status
			st.Conditions = append(st.Conditions[:1:1], condition(kind, status, "Says", "because"))
		}
	}
	deleting := func(s *installed) {
		now := metav1.Now()
		s.config.DeletionTimestamp, s.config.Finalizers = &now, []string{"vdo.vmware.com/drivers"}
	}
	beside := func(since time.Duration) func(*installed) {
		return func(s *installed) {
			lease := &coordinationv1.Lease{ObjectMeta: metaOf("vdo", "vdo-operator"), Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("host-abc_0c2f"), RenewTime: new(metav1.NewMicroTime(time.Now().Add(-since))),
			}}
			s.operator, s.more = nil, append(s.more, lease)
		}
	}
	for name, c := range map[string]struct {
		change func(*installed)
		ready  bool
		says   []string
	}{
		"all is well": {func(*installed) {}, true, []string{"Deployment/vdo/vdo-operator true - registry.site/vdo/operator:1.2.3, 1/1 ready", "everything is ready"}},
		"no operator": {func(s *installed) { s.operator = nil }, false,
			[]string{"there is no operator in namespace vdo: `vdoctl deploy BUNDLE` installs one; where it"}},
		"no pod of the operator": {func(s *installed) { s.operator.Status.AvailableReplicas = 0 }, false,
			[]string{"0 of 1 pods of this version are ready"}},
		"only a pod of a former version":     {func(s *installed) { s.operator.Status.Replicas = 2 }, false, []string{"0 of 1 pods"}},
		"a new version that is not seen yet": {func(s *installed) { s.operator.Generation = 2 }, false, []string{"0 of 1 pods"}},
		"scaled to 0":                        {func(s *installed) { s.operator.Spec.Replicas = ptr.To(int32(0)) }, false, []string{"the operator is scaled to 0"}},
		"an operator outside of the cluster": {beside(0), true, []string{"it runs beside the cluster, host-abc leads"}},
		"one that stopped":                   {beside(2 * time.Minute), false, []string{"(Unknown) the operator beside the cluster, host-abc, did not renew its Lease for 2m0s"}},
		"one that was killed":                {beside(time.Hour), false, []string{"there is no operator in namespace vdo"}},
		"the version of a bundle": {func(s *installed) {
			s.operator.Annotations = map[string]string{"vdo.vmware.com/operator-version": "1.2.4"}
		}, true, []string{"1.2.4, 1/1 ready"}},
		"no VDOConfig": {func(s *installed) { s.config = nil }, false, []string{"no VDOConfig in namespace vdo; use -n, or create one with `vdoctl configure`"}},
		"not observed": {func(s *installed) { s.config.Generation = 2 }, false, []string{"the operator has not seen its last change", "`kubectl -n vdo logs deployment"}},
		"not observed, without an operator": {func(s *installed) {
			s.operator, s.vcenter.Generation, s.config.Generation = nil, 2, 2
		}, false, []string{"the operator has not seen its last change VDOConfig vdo (NotObserved)"}},
		"a vCenter that refuses": {func(s *installed) {
			refused := condition("Ready", "False", "Unauthorized", "the vCenter refuses the user name")
			s.vcenter.Status.Conditions = []metav1.Condition{refused}
		}, false, []string{"VsphereCloudConfig/east false Unauthorized see below", "VsphereCloudConfig east (Unauthorized) the vCenter refuses the user name"}},
		"a driver that is not well": {func(s *installed) {
			st := &s.config.Status
			st.NodesReady = "2/3"
			st.Drivers = []v1alpha1.DriverStatus{{Driver: "csi", Version: "3.5.1", Wanted: "3.7.3", Message: "0 of 1 pods"}}
			st.Nodes = []v1alpha1.NodeStatus{{Name: "node-2", Driver: "csi", Message: "not registered yet"}}
			unhealthy := condition("CSIReady", "False", "Unhealthy", "controller not ready")
			sum := condition("Ready", "False", "Unhealthy", "csi: controller not ready")
			st.Conditions = []metav1.Condition{unhealthy, sum}
		}, false, []string{"driver/csi false - 3.5.1 -> 3.7.3 0 of 1 pods", "not ready VDOConfig vdo (Unhealthy) CSIReady: controller not ready nodes 2/3 ready", "node-2 (csi): not registered yet"}},
		"a VDOConfig that is deleted":    {deleting, false, []string{"VDOConfig vdo (Deleting)", "it is being deleted since "}},
		"what the next Kubernetes lacks": {also("Upgradeable", "False"), true, []string{"ahead VDOConfig vdo (Says) Upgradeable: because everything is ready"}},
		"suspended":                      {also("Suspended", "True"), false, []string{"not ready VDOConfig vdo (Says) Suspended: because"}},
		"drifted":                        {also("Drifted", "True"), false, []string{"not ready VDOConfig vdo (Says) Drifted: because"}},
		"an upgrade that is not approved": {upgraded("False", "True", "NotApproved"), true,
			[]string{"ahead VDOConfig vdo (NotApproved) Upgraded: because of it everything is ready"}},
		"one that is new":          {upgraded("Unknown", "True", "Progressing"), true, []string{"ahead VDOConfig vdo (Progressing)"}},
		"one of what is not ready": {upgraded("False", "False", "NotApproved"), false, []string{"not ready VDOConfig vdo (NotApproved)"}},
		"what Ready alone says": {func(s *installed) {
			unhealthy := condition("CSIReady", "False", "Unhealthy", "0 of 1 pods")
			refused := condition("Ready", "False", "Refused", "volumes use it")
			s.config.Status.Conditions = []metav1.Condition{unhealthy, refused}
		}, false, []string{"(Unhealthy) CSIReady: 0 of 1 pods", "VDOConfig vdo (Refused) volumes use it"}},
		"one that was rolled back": {upgraded("False", "True", "RolledBack"), false, []string{"not ready VDOConfig vdo (RolledBack)"}},
		"one that is refused":      {upgraded("False", "True", "DowngradeRefused"), false, []string{"not ready VDOConfig vdo (DowngradeRefused)"}},
		"checks": {func(s *installed) {
			at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			found := v1alpha1.PreflightResult{ID: "cluster", Action: "Warn", VCenter: "west", Objects: []string{"a", "b"}, Found: "one", Remedy: "mend it"}
			s.config.Status.Preflight = &v1alpha1.PreflightStatus{CheckedAt: &at, Passed: 12, Results: []v1alpha1.PreflightResult{found}}
		}, true, []string{"checks 12 passed, at 2026-01-02T03:04:05Z; to check now: `vdoctl check` Warn cluster in west on a, b: one do mend it"}},
		"checks from before a roll-out": {func(s *installed) {
			at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			s.config.Status.Preflight = &v1alpha1.PreflightStatus{CheckedAt: &at, Passed: 12}
			later := metav1.NewTime(at.Add(time.Second))
			s.config.Status.Revisions = []v1alpha1.RevisionStatus{{Current: true, Since: later}}
		}, true, []string{"checks 12 passed, at 2026-01-02T03:04:05Z, before the last roll-out; to check now: `vdoctl check`"}},
		"checks of a bundle": {func(s *installed) {
			found := v1alpha1.PreflightResult{ID: "image-platform", Action: "BlockInstall", Found: "for other nodes"}
			s.config.Status.Preflight = &v1alpha1.PreflightStatus{Results: []v1alpha1.PreflightResult{found}}
		}, true, []string{"checks 0 passed, of what the bundle holds alone: cluster and vCenters were not checked BlockInstall image-platform: for other nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newInstalled()
			c.change(s)
			var out bytes.Buffer
			o := statusTo(&out)
			o.prose = true
			err := o.show(t.Context(), s.client(t))
			require.Equal(t, c.ready, err == nil, out.String())
			folded := strings.Join(strings.Fields(out.String()), " ")
			for _, text := range c.says {
				require.Contains(t, folded, text)
			}
		})
	}
}

func TestStatusIsATable(t *testing.T) {
	s := newInstalled()
	s.vcenter.Status.Conditions = []metav1.Condition{condition("Ready", "False", "Unauthorized", "the vCenter refuses")}
	long := strings.Repeat("controller not ready, ", 10)
	s.config.Status.Conditions = []metav1.Condition{condition("CSIReady", "False", "Unhealthy", long+"end\nanother")}
	var out bytes.Buffer
	require.Equal(t, &resultError{code: 8}, statusTo(&out).show(t.Context(), s.client(t)))
	for _, row := range []string{`NAME +READY +REASON +MESSAGE`, `VsphereCloudConfig/east +false +Unauthorized +the vCenter refuses`,
		`VDOConfig/vdo +false +Unhealthy +CSIReady: ` + long + `end; another`, `driver/csi +true +- +3.5.1`} {
		require.Regexp(t, `(?m)^`+row+`$`, out.String())
	}

	sip := statusTo(&out)
	sip.cluster.namespace = "vmware-system-sip"
	out.Reset()
	require.Error(t, sip.show(t.Context(), s.client(t)))
	require.Contains(t, out.String(), "vdoctl serves the drivers' operator")
	require.NotContains(t, out.String(), "vdoctl deploy")

	s = newInstalled()
	s.config.Status.Candidate = &v1alpha1.CandidateStatus{Name: "r2"}
	st := &s.config.Status
	st.Conditions = append(st.Conditions, condition("Upgraded", "False", "NotApproved", "r2 waits"))
	out.Reset()
	require.NoError(t, statusTo(&out).show(t.Context(), s.client(t)))
	require.Regexp(t, `(?m)^ahead +- +NotApproved +VDOConfig vdo: Upgraded: r2 waits$`, out.String())
	require.Contains(t, out.String(), "what to do: `vdoctl describe`\n", "an upgrade waits")
}

// screens calls a function with each screen.
type screens func(screen string)

func (s screens) Write(p []byte) (int, error) {
	s(string(p))
	return len(p), nil
}

// It is shown what is not ready, and once it is made so, what is. The API server restarts after the first screen.
func TestStatusIsWatchedUntilCtrlC(t *testing.T) {
	s := newInstalled()
	s.config.Status.Conditions = []metav1.Condition{condition("CSIReady", "False", "Unhealthy", "controller not ready")}
	ctx, cancel := context.WithCancel(t.Context())
	shown, refused, last := false, false, ""
	c := interceptor.NewClient(s.client(t), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if shown && !refused {
				refused = true
				return apierrors.NewServiceUnavailable("it restarts")
			}
			return c.List(ctx, list, o...)
		}})
	o := statusTo(screens(func(screen string) {
		shown, last = true, screen
		if !strings.Contains(screen, "not ready") {
			cancel()
			return
		}
		s.config.Status.Conditions = []metav1.Condition{condition("CSIReady", "True", "Healthy", "")}
		require.NoError(t, c.Update(ctx, s.config))
	}))
	var said strings.Builder
	o.err, o.watch, o.interval = &said, true, time.Millisecond
	require.ErrorIs(t, o.show(ctx, c), context.Canceled)
	require.Contains(t, said.String(), "it restarts")
	require.Regexp(t, `VDOConfig/vdo +true`, last)
}

func TestFurtherLinesAreBelowTheFirst(t *testing.T) {
	screen := columns.Screen{Wide: 40}
	l := &lines{w: &screen}
	l.block("why", "csi@3.5.1 is installed and serves Kubernetes 1.33")
	l.block("   not yet", "csi@3.5.1 is installed and serves Kubernetes 1.33")
	l.block("why", "one fault\n\nanother")
	require.NoError(t, l.err)
	require.Equal(t, `  why: csi@3.5.1 is installed and serves
    Kubernetes 1.33
     not yet: csi@3.5.1 is installed and
       serves Kubernetes 1.33
  why: one fault
    another
`, screen.String())
}
