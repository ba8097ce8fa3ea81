package assess_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

var now = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func labels(driver, version string) map[string]string {
	return map[string]string{"app.kubernetes.io/managed-by": "vdo-operator", "vdo.vmware.com/driver": driver, "vdo.vmware.com/version": version}
}

func selects(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func daemonSet(ns, name, driver, version string, desired, updated, available int32) appsv1.DaemonSet {
	return appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Generation: 2, Labels: labels(driver, version)},
		Spec:       appsv1.DaemonSetSpec{Selector: selects(name)},
		Status:     appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: desired, UpdatedNumberScheduled: updated, NumberAvailable: available},
	}
}

func deployment(replicas, updated, available int32) appsv1.Deployment {
	return appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: "vsphere-csi-controller", Generation: 1, Labels: labels("csi", "3.5.1")},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: selects("vsphere-csi-controller")},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 1, UpdatedReplicas: updated, AvailableReplicas: available},
	}
}

func node(name string, up, plane bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/os": "linux"}, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	n.Spec.ProviderID = "vsphere://" + name
	state := corev1.ConditionFalse
	if up {
		state = corev1.ConditionTrue
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: state}}
	if plane {
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
	return n
}

func registered(name string, keys ...string) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: drivers.CSIDriver, NodeID: name, TopologyKeys: keys}}}}
}

// healthy is a cluster of one control-plane node and two workers where all is well.
func healthy() assess.Input {
	return assess.Input{
		Now: now, Wanted: []matrix.Driver{matrix.CPI, matrix.CSI},
		Observed: assess.Observed{
			Nodes:    []*corev1.Node{node("cp", true, true), node("w1", true, false), node("w2", true, false)},
			CSINodes: []*storagev1.CSINode{registered("cp"), registered("w1"), registered("w2")},
			DaemonSets: []appsv1.DaemonSet{
				daemonSet("kube-system", "vsphere-cloud-controller-manager", "cpi", "1.33.1", 1, 1, 1),
				daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.5.1", 3, 3, 3),
			},
			Deployments: []appsv1.Deployment{deployment(1, 1, 1)},
			CSIDriver:   &storagev1.CSIDriver{}, SnapshotCRDs: true,
		},
	}
}

func TestAllIsWell(t *testing.T) {
	rep := assess.Assess(healthy())
	for _, d := range []matrix.Driver{matrix.CPI, matrix.CSI} {
		require.True(t, rep.Drivers[d].Healthy(), rep.Drivers[d])
		require.True(t, rep.Drivers[d].Complete)
	}
	require.Equal(t, "3.5.1", rep.Drivers[matrix.CSI].Version)
	require.Equal(t, 3, rep.NodesReady)
}

func TestARestartingNodeIsNoFailure(t *testing.T) {
	in := healthy()
	in.Nodes[2] = node("w2", false, false)
	in.DaemonSets[1] = daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.5.1", 3, 3, 2)
	in.CSINodes = in.CSINodes[:2]
	p := pod("vsphere-csi-node", "driver", corev1.ContainerState{}, "") // a node that is away keeps its pod
	p.Spec.NodeName = "w2"
	in.Pods = []*corev1.Pod{p}
	h := assess.Assess(in).Drivers[matrix.CSI]
	require.True(t, h.Healthy(), h)
}

// A node plugin for Windows of another installer, which no node runs, does not count; the operator's own does.
func TestWhatNoWindowsNodeRunsDoesNotCount(t *testing.T) {
	in := healthy()
	windows := daemonSet("vmware-system-csi", "vsphere-csi-node-windows", "csi", "3.6.0", 0, 0, 0)
	in.DaemonSets = append(in.DaemonSets, windows)
	require.Len(t, in.Workloads(matrix.CSI), 3, "else it would be missing")
	delete(in.DaemonSets[2].Labels, "app.kubernetes.io/managed-by")
	h := assess.Assess(in).Drivers[matrix.CSI]
	require.Equal(t, "3.5.1", h.Version)
	require.True(t, h.Complete)
}

// Only what lacks on nodes that are away is forgiven, and never all of it.
func TestWhatRunsNowhereIsNotRolledOut(t *testing.T) {
	const cpi, csi = "vsphere-cloud-controller-manager", "vsphere-csi-node"
	on := func(app, ns, node string) *corev1.Pod {
		p := pod(app, "c", corev1.ContainerState{}, "")
		p.Namespace, p.Spec.NodeName = ns, node
		return p
	}
	for name, c := range map[string]struct {
		edit   func(*assess.Input)
		driver matrix.Driver
		done   bool
	}{
		"a cloud provider that was never rolled out, with three workers away": {func(in *assess.Input) {
			in.Nodes = append(in.Nodes, node("w3", false, false), node("w4", false, false), node("w5", false, false))
			in.DaemonSets[0] = daemonSet("kube-system", cpi, "cpi", "1.33.1", 1, 0, 0)
		}, matrix.CPI, false},
		"a pod lacks on a node that is there, another node is away": {func(in *assess.Input) {
			in.Nodes[2] = node("w2", false, false)
			up := on(csi, "vmware-system-csi", "w2")
			up.Labels["pod-template-generation"] = "4"
			up.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			in.Pods = []*corev1.Pod{up}
			in.DaemonSets[1] = daemonSet("vmware-system-csi", csi, "csi", "3.5.1", 3, 2, 2)
			in.DaemonSets[1].Annotations = map[string]string{"deprecated.daemonset.template.generation": "4"}
		}, matrix.CSI, false},
		"as many nodes are away as pods lack, and others have them": {func(in *assess.Input) {
			in.Nodes = append(in.Nodes, node("w3", false, false))
			in.DaemonSets[1] = daemonSet("vmware-system-csi", csi, "csi", "3.5.1", 3, 3, 2)
		}, matrix.CSI, false},
	} {
		in := healthy()
		c.edit(&in)
		require.Equal(t, c.done, assess.Assess(in).Drivers[c.driver].Complete, name)
		for _, w := range in.Workloads(c.driver) {
			if w.Kind == "DaemonSet" {
				require.Equal(t, c.done, in.RolledOut(w), name)
			}
		}
	}
}

// The report does not grow with the cluster.
func TestTroubleOnEveryOfFiveThousandNodesIsFewFindings(t *testing.T) {
	in := large(5000)
	h := assess.Assess(in).Drivers[matrix.CSI]
	require.Less(t, len(h.Findings), 20)
	text := fault.Text(h.Err()) + h.Waits()
	require.Less(t, len(text), 16<<10)
	require.Contains(t, text, "on 5000 nodes (node-00000")
	require.Contains(t, text, "hosts.toml")
}

// large is a cluster where every container of every pod fails, each in words of its own.
func large(n int) assess.Input {
	in := healthy()
	in.Nodes, in.CSINodes = nil, nil
	in.DaemonSets[1] = daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.5.1", int32(n), 0, 0)
	for i := range n {
		name := fmt.Sprintf("node-%05d", i)
		nd := node(name, true, i < 3)
		nd.Spec.ProviderID = "other://" + strings.Repeat("x", 500) + name
		in.Nodes = append(in.Nodes, nd)
		p := pod("vsphere-csi-node", "driver", waiting("ImagePullBackOff", "tls: x509: signed by unknown authority: "+strings.Repeat(name+" ", 100)), "")
		p.Name, p.Spec.NodeName = "vsphere-csi-node-"+name, name
		for c := range 8 {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses,
				corev1.ContainerStatus{Name: fmt.Sprintf("c%d", c), State: waiting("CrashLoopBackOff", ""), RestartCount: int32(i),
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: name + strings.Repeat(" words", 100)}}},
				corev1.ContainerStatus{Name: fmt.Sprintf("d%d", c), State: waiting("CreateContainerError", name)})
		}
		in.Pods = append(in.Pods, p)
	}
	return in
}

func TestFewerControlPlaneNodesThanReplicasAreNoFailure(t *testing.T) {
	in := healthy()
	in.Deployments[0] = deployment(3, 1, 1)
	require.True(t, assess.Assess(in).Drivers[matrix.CSI].Healthy())
	in.Deployments[0] = deployment(3, 0, 0)
	require.False(t, assess.Assess(in).Drivers[matrix.CSI].Healthy(), "none at all is one")
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func pod(app, container string, state corev1.ContainerState, last string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: app + "-1", Labels: map[string]string{"app": app}, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	p.Spec.NodeName = "w1"
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: state, RestartCount: 5}}
	if last != "" {
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Message: last, ExitCode: 1}
	}
	return p
}

func TestFindingsNameCauseAndRemedy(t *testing.T) {
	crash := func(container, last string) func(*assess.Input) {
		return func(in *assess.Input) {
			in.Pods = []*corev1.Pod{pod("vsphere-csi-node", container, waiting("CrashLoopBackOff", ""), last)}
		}
	}
	pull := func(message string) func(*assess.Input) {
		return func(in *assess.Input) {
			in.Pods = []*corev1.Pod{pod("vsphere-csi-node", "driver", waiting("ImagePullBackOff", message), "")}
		}
	}
	refused := func(message string) func(*assess.Input) {
		return func(in *assess.Input) {
			in.DaemonSets[1] = daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.5.1", 3, 0, 0)
			in.Events = []corev1.Event{{Reason: "FailedCreate", Message: message,
				InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Namespace: "vmware-system-csi", Name: "vsphere-csi-node"}}}
		}
	}
	replicaFailure := func(message string) func(*assess.Input) {
		return func(in *assess.Input) {
			in.Deployments[0] = deployment(1, 0, 0)
			in.Deployments[0].Status.Conditions = []appsv1.DeploymentCondition{{
				Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: message}}
		}
	}
	const (
		scc = `pods "vsphere-csi-node-" is forbidden: unable to validate against any security context constraint: ` +
			`[provider "restricted-v2": Forbidden: not usable by user or serviceaccount]`
		quota = `pods "vsphere-csi-node-x7k2p" is forbidden: exceeded quota: compute, requested: limits.cpu=1, used: limits.cpu=4, limited: limits.cpu=4`
	)
	for name, c := range map[string]struct {
		edit   func(*assess.Input)
		driver matrix.Driver
		reason fault.Reason
		says   string
	}{
		"mirror's certificate":    {pull("tls: x509: certificate signed by unknown authority"), matrix.CSI, fault.CertificateInvalid, "hosts.toml"},
		"mirror's login":          {pull("401 Unauthorized"), matrix.CSI, fault.Unauthorized, "spec.pullSecret"},
		"image not pushed":        {pull("manifest unknown"), matrix.CSI, fault.NotFound, "vdo-bundle push"},
		"digits in a digest":      {pull("pulling sha256:0401f403a404 on node-00401: i/o timeout"), matrix.CSI, fault.Unreachable, "reaches the mirror"},
		"registry deleted":        {pull("Project cloud-provider-vsphere has been deleted"), matrix.CSI, fault.NotFound, "registry of that image is gone"},
		"platform missing":        {pull("no match for platform in manifest"), matrix.CSI, fault.Incompatible, "--platform all"},
		"registrar before syncer": {crash("node-driver-registrar", "boom"), matrix.CSI, fault.Incomplete, "vsphere-csi-controller first"},
		"no CSINodeTopology":      {crash("node-driver-registrar", `no matches for kind "CSINodeTopology"`), matrix.CSI, fault.Incomplete, "vsphere-csi-controller first"},
		"no VMware VM":            {crash("vsphere-csi-node", "failed to match Prefix, UUID read from the file"), matrix.CSI, fault.Incompatible, "vSphere VMs only"},
		"no disk UUID":            {crash("vsphere-csi-node", "disk x not attached to node"), matrix.CSI, fault.Incompatible, "disk.EnableUUID"},
		"snapshot kinds absent": {func(in *assess.Input) {
			in.SnapshotCRDs = false
			crash("csi-snapshotter", "boom")(in)
		}, matrix.CSI, fault.Incomplete, "snapshot kinds are not installed"},
		"CSIDriver absent":  {func(in *assess.Input) { in.CSIDriver = nil }, matrix.CSI, fault.NotFound, "CSIDriver"},
		"pod security":      {refused(`violates PodSecurity "baseline:latest": privileged`), matrix.CSI, fault.Forbidden, "pod-security.kubernetes.io/enforce=privileged"},
		"no SCC":            {refused(scc), matrix.CSI, fault.Forbidden, "bind the SecurityContextConstraints"},
		"quota":             {refused(quota), matrix.CSI, fault.Forbidden, "raise the namespace's quota"},
		"another admission": {refused(`admission webhook "policy.example" denied the request`), matrix.CSI, fault.Forbidden, "which admission policy refuses them"},
		"pod security, of a Deployment": {replicaFailure(`pods "vsphere-csi-controller-" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes`),
			matrix.CSI, fault.Forbidden, "pod-security.kubernetes.io/enforce=privileged"},
		"no SCC, of a Deployment": {replicaFailure(scc), matrix.CSI, fault.Forbidden, "bind the SecurityContextConstraints"},
		"quota, of a Deployment":  {replicaFailure(quota), matrix.CSI, fault.Forbidden, "raise the namespace's quota"},
		"taint stays": {func(in *assess.Input) {
			in.Nodes[1].Spec.Taints = []corev1.Taint{{Key: assess.TaintUninitialized}}
		}, matrix.CPI, fault.Incomplete, "VMware Tools"},
		"never tainted":  {func(in *assess.Input) { in.Nodes[1].Spec.ProviderID = "" }, matrix.CPI, fault.Incomplete, "--cloud-provider=external"},
		"k3s":            {func(in *assess.Input) { in.Nodes[1].Spec.ProviderID = "k3s://w1" }, matrix.CPI, fault.Conflict, "k3s://w1"},
		"not registered": {func(in *assess.Input) { in.CSINodes = in.CSINodes[:2] }, matrix.CSI, fault.Incomplete, "customKubeletPath"},
		"no topology":    {func(in *assess.Input) { in.Topology = true }, matrix.CSI, fault.Incomplete, "without topology"},
		"topology error": {func(in *assess.Input) { in.NodeTopologies = map[string]string{"w1": "nodeVM was not found"} }, matrix.CSI, fault.Incomplete, "nodeVM was not found"},
		"no control plane": {func(in *assess.Input) {
			in.DaemonSets[0] = daemonSet("kube-system", "vsphere-cloud-controller-manager", "cpi", "1.33.1", 0, 0, 0)
		}, matrix.CPI, fault.Incomplete, "node-role.kubernetes.io/control-plane"},
	} {
		t.Run(name, func(t *testing.T) {
			in := healthy()
			c.edit(&in)
			h := assess.Assess(in).Drivers[c.driver]
			require.Error(t, h.Err())
			require.Equal(t, c.reason, fault.ReasonOf(h.Err()))
			require.Contains(t, fault.Text(h.Err()), c.says)
			require.NotEmpty(t, fault.HintOf(h.Err()))
		})
	}
}

func TestARollOutUnderWayIsWaitedForNotBlamed(t *testing.T) {
	in := healthy()
	in.DaemonSets[1] = daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.5.1", 3, 1, 1)
	in.CSINodes = in.CSINodes[:1]
	rep := assess.Assess(in)
	h := rep.Drivers[matrix.CSI]
	require.NoError(t, h.Err())
	require.Contains(t, h.Waits(), "has 1 of 3 pods updated")
	require.False(t, h.Complete)
	require.Equal(t, 1, rep.NodesReady)
}

func TestAYoungNodeHasItsTime(t *testing.T) {
	in := healthy()
	in.Nodes[1].CreationTimestamp = metav1.NewTime(now.Add(-time.Second))
	in.Nodes[1].Spec.ProviderID = ""
	in.Nodes[1].Spec.Taints = []corev1.Taint{{Key: assess.TaintUninitialized}}
	h := assess.Assess(in).Drivers[matrix.CPI]
	require.NoError(t, h.Err())
	require.NotEmpty(t, h.Waits())
}

func TestManyNodesAreOneFinding(t *testing.T) {
	in := healthy()
	for i := range in.Nodes {
		in.Nodes[i].Spec.ProviderID = ""
	}
	rep := assess.Assess(in)
	require.Len(t, rep.Nodes, 3)
	require.Len(t, rep.Drivers[matrix.CPI].Findings, 1)
	require.Contains(t, rep.Drivers[matrix.CPI].Err().Error(), "3 of 3 nodes (cp, w1, w2): has no providerID")
	require.Zero(t, rep.NodesReady)
}

func TestVersionIsObservedFromLabelsElseFromImages(t *testing.T) {
	ds := daemonSet("kube-system", "vsphere-cloud-controller-manager", "cpi", "1.33.1", 1, 1, 1)
	w, ok := assess.FromDaemonSet(&ds)
	require.True(t, ok)
	require.Equal(t, "1.33.1", w.Version)
	ds.Labels = nil
	zeros := strings.Repeat("0", 64)
	for image, version := range map[string]string{
		"gcr.io/cloud-provider-vsphere/cpi/release/manager:v1.26.0":         "1.26.0",
		"registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.31.0":   "1.31.0",
		"harbor.site:8443/x/cloud-provider-vsphere@sha256:" + zeros:         "",
		"harbor.site:8443/x/cloud-provider-vsphere:v1.31.0@sha256:" + zeros: "1.31.0",
	} {
		ds.Spec.Template.Spec.Containers = []corev1.Container{{Image: image}}
		w, ok = assess.FromDaemonSet(&ds)
		require.True(t, ok, image)
		require.Equal(t, matrix.CPI, w.Driver)
		require.Equal(t, version, w.Version, image)
	}
}

func TestUnrelatedWorkloadsOfTheNamespaceDoNotCount(t *testing.T) {
	in := healthy()
	in.Pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns", Labels: map[string]string{"app": "dns"}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: waiting("CrashLoopBackOff", "")}}}}}
	require.True(t, assess.Assess(in).Drivers[matrix.CPI].Healthy())
	other := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}}
	_, ok := assess.FromDaemonSet(&other)
	require.False(t, ok)
}

func TestForeignInstallationsAreFound(t *testing.T) {
	helm := daemonSet("kube-system", "vsphere-cpi", "", "", 1, 1, 1)
	helm.Labels, helm.Annotations = nil, map[string]string{"meta.helm.sh/release-name": "cpi"}
	in := healthy()
	in.DaemonSets = append(in.DaemonSets, helm)
	foreign := in.Foreign()
	require.Len(t, foreign, 1)
	require.Equal(t, "cpi", foreign[0].Helm)
	require.Len(t, in.Workloads(matrix.CPI), 1, "which do not count as ours")
}

// What a tenant may choose tells nothing: names, labels, annotations, images.
func TestAWorkloadIsOfADriverByItsPlaceAlone(t *testing.T) {
	in := healthy()
	for _, name := range []string{"vsphere-cloud-controller-manager", "vsphere-csi-node", "vsphere-cpi", "x"} {
		ds := daemonSet("tenant", name, "csi", "9.9.9", 1, 0, 0)
		ds.Annotations = map[string]string{"meta.helm.sh/release-name": "cpi"}
		in.DaemonSets = append(in.DaemonSets, ds)
	}
	d := deployment(1, 0, 0)
	d.Namespace, d.Spec.Template.Spec.Containers = "tenant", []corev1.Container{{Image: "x.example/sig-storage/snapshot-controller:v8.2.0"}}
	in.Deployments = append(in.Deployments, d)
	require.Empty(t, in.Foreign())
	require.True(t, assess.Assess(in).Drivers[matrix.CSI].Healthy())
	require.Equal(t, "3.5.1", assess.Assess(in).Drivers[matrix.CSI].Version)
}

func TestWhatMayNotBeReadIsAFindingOfItsDriverAlone(t *testing.T) {
	in := healthy()
	in.AddFault(matrix.CSI, &fault.Error{Reason: fault.Forbidden, Op: "list", Subject: "pods", Err: errors.New("is forbidden"), Hint: "apply the RBAC manifests"})
	rep := assess.Assess(in)
	require.True(t, rep.Drivers[matrix.CPI].Healthy())
	require.Equal(t, fault.Forbidden, fault.ReasonOf(rep.Drivers[matrix.CSI].Err()))
	require.Contains(t, fault.Text(rep.Drivers[matrix.CSI].Err()), "apply the RBAC manifests")
}

// Its events outlive a DaemonSet: one of the same name that is made after it is not refused.
func TestARefusalOfADeletedDaemonSetIsNoFinding(t *testing.T) {
	for uid, want := range map[types.UID]bool{"this": true, "deleted": false} {
		in := healthy()
		d := daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.5.1", 3, 3, 2)
		d.UID = "this"
		in.DaemonSets[1] = d
		in.Events = []corev1.Event{{Reason: "FailedCreate", Message: "denied", InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Namespace: d.Namespace, Name: d.Name, UID: uid}}}
		require.Equal(t, want, strings.Contains(fault.Text(assess.Assess(in).Drivers[matrix.CSI].Err()), "its pods are refused"), uid)
	}
}

// Under OnDelete a refusal of pods is told while a pod lacks: the event outlives its cause.
func TestARefusalIsOldWhereNoPodLacks(t *testing.T) {
	for current, want := range map[int32]bool{2: true, 3: false} {
		in := healthy()
		d := daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.7.3", 3, 1, 3)
		d.Spec.UpdateStrategy.Type, d.Status.CurrentNumberScheduled = appsv1.OnDeleteDaemonSetStrategyType, current
		in.DaemonSets[1] = d
		in.Events = []corev1.Event{{Reason: "FailedCreate", Message: "denied", InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Namespace: d.Namespace, Name: d.Name}}}
		require.Equal(t, want, assess.Assess(in).Drivers[matrix.CSI].Err() != nil, current)
	}
}

// A pod that is newer than the event was let in: what refused them was put right.
func TestARefusalIsOldWhereAPodIsNewer(t *testing.T) {
	for after, want := range map[time.Duration]bool{-time.Minute: true, 0: true, time.Minute: false} {
		in := healthy()
		d := daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.5.1", 3, 3, 2)
		in.DaemonSets[1] = d
		in.Events = []corev1.Event{{Reason: "FailedCreate", Message: "denied", LastTimestamp: metav1.NewTime(now),
			InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Namespace: d.Namespace, Name: d.Name}}}
		p := pod("vsphere-csi-node", "driver", corev1.ContainerState{}, "")
		p.CreationTimestamp = metav1.NewTime(now.Add(after))
		in.Pods = []*corev1.Pod{p}
		require.Equal(t, want, assess.Assess(in).Drivers[matrix.CSI].Err() != nil, after)
	}
}

// Without replicas nothing works.
func TestADeploymentThatIsScaledToNothingIsNotRolledOut(t *testing.T) {
	for replicas, says := range map[int32]string{0: "is scaled to 0, 1 are wanted", 2: "", 5: ""} {
		in := healthy()
		in.Nodes = append(in.Nodes, node("cp2", true, true), node("cp3", true, true))
		in.CSINodes = append(in.CSINodes, registered("cp2"), registered("cp3"))
		up := min(replicas, 3) // there are nodes for three
		in.Deployments[0] = deployment(replicas, up, up)
		h := assess.Assess(in).Drivers[matrix.CSI]
		if says == "" {
			require.True(t, h.Healthy(), "%d: %+v", replicas, h)
			continue
		}
		require.False(t, h.Complete)
		require.ErrorContains(t, h.Err(), "Deployment vmware-system-csi/vsphere-csi-controller: "+says)
		require.Contains(t, h.Findings[0].Remedy, "spec.drift")
	}
}
