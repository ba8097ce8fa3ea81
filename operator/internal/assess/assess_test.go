package assess_test

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

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
		Requested: []matrix.Driver{matrix.CPI, matrix.CSI},
		Observed: assess.Observed{
			Now:      now,
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

// Each row changes a healthy cluster. What it is then: "well"; "rolling", which is waited for, or "serving"
// meanwhile; or what is amiss, and whether no node is served. Complete is whether all of the driver is rolled out.
func TestWhatAChangeOfAHealthyClusterMeans(t *testing.T) {
	const (
		cloud, csiNode = "vsphere-cloud-controller-manager", "vsphere-csi-node"
		system, own    = "kube-system", "vmware-system-csi"
	)
	plugin := func(desired, updated, available int32) func(*assess.Input) {
		return func(in *assess.Input) {
			in.DaemonSets[1] = daemonSet(own, csiNode, "csi", "3.5.1", desired, updated, available)
		}
	}
	controller := func(replicas int32) func(*assess.Input) {
		return func(in *assess.Input) {
			in.Deployments[0] = deployment(replicas, replicas, replicas)
			for _, name := range []string{"cp0", "cp1"} {
				in.Nodes, in.CSINodes = append(in.Nodes, node(name, true, true)), append(in.CSINodes, registered(name))
			}
		}
	}
	down := func(in *assess.Input, name string) {
		in.Nodes = append(slices.DeleteFunc(in.Nodes, func(n *corev1.Node) bool { return n.Name == name }), node(name, false, false))
	}
	linux := map[string]string{corev1.LabelOSStable: "linux"}
	beside := func(spec corev1.PodSpec, plugins ...appsv1.DaemonSet) func(*assess.Input) {
		return func(in *assess.Input) {
			in.DaemonSets[1].Spec.Template.Spec = spec
			in.DaemonSets = append(in.DaemonSets, plugins...)
			in.Nodes = append(in.Nodes, node("win", true, false))
			in.Nodes[3].Labels = map[string]string{corev1.LabelOSStable: "windows"}
		}
	}
	refusal := func(edit func(*appsv1.DaemonSet)) func(*assess.Input) {
		return func(in *assess.Input) {
			d := &in.DaemonSets[1]
			d.UID = "this"
			edit(d)
			in.Events = []corev1.Event{{Reason: "FailedCreate", Message: "denied",
				InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Namespace: d.Namespace, Name: d.Name, UID: d.UID}}}
		}
	}
	// A pod that is newer than the event was let in: where none lacks, what refused them was put right.
	refusedBefore := func(made time.Duration, pods int) func(*assess.Input) {
		return func(in *assess.Input) {
			plugin(3, 3, 2)(in)
			refusal(func(*appsv1.DaemonSet) {})(in)
			in.Events[0].LastTimestamp = metav1.NewTime(now)
			for range pods {
				p := pod(csiNode, "driver", corev1.ContainerState{}, "")
				p.CreationTimestamp = metav1.NewTime(now.Add(made))
				in.Pods = append(in.Pods, p)
			}
		}
	}
	onDelete := func(current int32) func(*assess.Input) {
		return refusal(func(d *appsv1.DaemonSet) {
			d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
			d.Status.UpdatedNumberScheduled, d.Status.CurrentNumberScheduled = 1, current
		})
	}
	for name, c := range map[string]struct {
		edit     func(*assess.Input)
		driver   matrix.Driver // default: the storage driver
		is       string
		complete bool
		unready  int // nodes
	}{
		"a node restarts, and keeps its pod": {func(in *assess.Input) {
			down(in, "w2")
			plugin(3, 3, 2)(in)
			in.CSINodes = in.CSINodes[:2]
			in.Pods = []*corev1.Pod{pod(csiNode, "driver", corev1.ContainerState{}, "")}
			in.Pods[0].Spec.NodeName = "w2"
		}, "", "well", true, 0},
		"as many nodes are away as pods lack, and others have them": {func(in *assess.Input) {
			down(in, "w3")
			plugin(3, 3, 2)(in)
		}, "", "rolling", false, 0},
		"it is being rolled out": {func(in *assess.Input) {
			plugin(3, 1, 1)(in)
			in.CSINodes = in.CSINodes[:1]
		}, "", "rolling: has 1 of 3 pods updated", false, 2},
		"its pods are replaced, one of them now": {func(in *assess.Input) {
			plugin(3, 1, 2)(in)
			in.CSINodes = in.CSINodes[:2]
		}, "", "serving: has 1 of 3 pods updated", false, 1},
		"another workload lacks a pod meanwhile": {func(in *assess.Input) {
			plugin(3, 1, 3)(in)
			in.Deployments[0] = deployment(1, 1, 0)
		}, "", "rolling: has 0 of 1 pods available", false, 0},
		"a new pod lacks beside the old one": {func(in *assess.Input) {
			in.Deployments[0].Status.Replicas = 2
		}, "", "serving: has 0 of 1 pods available", false, 0},
		"a young node": {func(in *assess.Input) {
			in.Nodes[1].CreationTimestamp, in.Nodes[1].Spec.ProviderID = metav1.NewTime(now.Add(-time.Second)), ""
			in.Nodes[1].Spec.Taints = []corev1.Taint{{Key: assess.TaintUninitialized}}
		}, matrix.CPI, "serving", true, 1},
		"a node did not register before its pod was replaced": {func(in *assess.Input) {
			in.CSINodes = in.CSINodes[:2]
			in.Nodes = append(in.Nodes, node("w3", true, false))
			in.Nodes[3].CreationTimestamp = metav1.NewTime(now)
			in.Pods = []*corev1.Pod{pod(csiNode, "driver", corev1.ContainerState{}, "")}
			in.Pods[0].CreationTimestamp = metav1.NewTime(now)
		}, "", "rolling", true, 2},
		"a node failed long ago, and others join and leave": {func(in *assess.Input) {
			in.Nodes = append(in.Nodes, node("w3", true, false))
			in.Nodes[3].CreationTimestamp = metav1.NewTime(now)
			in.CSINodes = append(in.CSINodes[:2], registered("w3"))
			for _, n := range []string{"w3", "left"} {
				p := pod(csiNode, "driver", corev1.ContainerState{}, "")
				p.Spec.NodeName, p.CreationTimestamp = n, metav1.NewTime(now)
				in.Pods = append(in.Pods, p)
			}
		}, "", "1 of 4 nodes (w2): did not register", true, 1},
		"a pod starts on a young node, and the time is not known": {func(in *assess.Input) {
			plugin(3, 3, 2)(in)
			in.Nodes[1].CreationTimestamp, in.Now = metav1.NewTime(now), time.Time{}
			in.Pods = []*corev1.Pod{pod(csiNode, "driver", corev1.ContainerState{}, "")}
		}, "", "rolling: has 2 of 3 pods available", false, 0},
		"many nodes, in one finding": {func(in *assess.Input) {
			for _, n := range in.Nodes {
				n.Spec.ProviderID = ""
			}
		}, matrix.CPI, "3 of 3 nodes (cp, w1, w2): without providerID; none is served", true, 3},
		"a Deployment that is scaled to nothing": {controller(0), "", "is scaled to 0, 1 are wanted", false, 0},
		"one that is scaled up":                  {controller(2), "", "well", true, 0},
		"no node may run the node plugin, though it is registered": {
			plugin(0, 0, 0), "", "csi-node: finds no node to run on (check spec.excludedNodes", true, 0},
		"a pod lacks under OnDelete":                   {onDelete(2), "", "its pods are refused", false, 0},
		"no pod lacks under OnDelete: an old refusal":  {onDelete(3), "", "serving", false, 0},
		"pods are older than a refusal":                {refusedBefore(-time.Minute, 3), "", "its pods are refused", false, 0},
		"pods are as old as a refusal":                 {refusedBefore(0, 3), "", "its pods are refused", false, 0},
		"pods are newer than a refusal, and one lacks": {refusedBefore(time.Minute, 2), "", "its pods are refused", false, 0},
		"pods are newer than a refusal":                {refusedBefore(time.Minute, 3), "", "rolling", false, 0},
		"the refusal of one that was deleted": {func(in *assess.Input) {
			refusal(func(d *appsv1.DaemonSet) { d.Status.NumberAvailable = 2 })(in)
			in.Events[0].InvolvedObject.UID = "deleted"
		}, "", "rolling", false, 0},
		"a Windows plugin of another installer that no node runs": {func(in *assess.Input) {
			in.DaemonSets = append(in.DaemonSets, daemonSet(own, csiNode+"-windows", "csi", "3.6.0", 0, 0, 0))
			delete(in.DaemonSets[2].Labels, "app.kubernetes.io/managed-by")
		}, "", "well", true, 0},
		"a node that the plugin's selector leaves out": {beside(corev1.PodSpec{NodeSelector: linux}), "", "well", true, 0},
		"a node that its affinity leaves out":          {beside(homeless(csiNode, "w1", "", 0).Spec), "", "well", true, 0},
		"a node that one plugin of two admits": {
			beside(corev1.PodSpec{NodeSelector: linux}, daemonSet(own, csiNode+"-windows", "csi", "3.5.1", 1, 1, 1)),
			"", "1 of 4 nodes (win): did not register the storage driver", true, 1},
		"no plugin is there yet": {
			func(in *assess.Input) { in.DaemonSets, in.CSINodes = in.DaemonSets[:1], nil }, "",
			"3 of 3 nodes (cp, w1, w2): did not register the storage driver; none is served", true, 3},
		"no node is registered, and they are young": {func(in *assess.Input) {
			in.CSINodes = nil
			for _, n := range in.Nodes {
				n.CreationTimestamp = metav1.NewTime(in.Now)
			}
		}, "", "rolling; none is served", true, 3},
		"none is registered beside a Windows node": {func(in *assess.Input) {
			in.CSINodes = nil
			beside(corev1.PodSpec{NodeSelector: linux})(in)
		}, "", "3 of 4 nodes (cp, w1, w2): did not register the storage driver; none is served", true, 3},
		"a node of a virtual kubelet": {func(in *assess.Input) {
			in.Nodes = append(in.Nodes, node("virtual", true, false))
			in.Nodes[3].Labels["type"] = "virtual-kubelet"
		}, "", "well", true, 0},
		"pods of others in the namespace": {func(in *assess.Input) {
			in.Pods = []*corev1.Pod{pod("dns", "c", waiting("CrashLoopBackOff", ""), "")}
			in.Pods[0].Namespace = system
		}, matrix.CPI, "well", true, 0},
		// Names, labels, annotations and images are a tenant's to choose.
		"workloads of tenants that are called like a driver's": {func(in *assess.Input) {
			for _, name := range []string{cloud, csiNode, "vsphere-cpi", "x"} {
				ds := daemonSet("tenant", name, "csi", "9.9.9", 1, 0, 0)
				ds.Annotations = map[string]string{"meta.helm.sh/release-name": "cpi"}
				in.DaemonSets = append(in.DaemonSets, ds)
			}
			d := deployment(1, 0, 0)
			d.Namespace = "tenant"
			d.Spec.Template.Spec.Containers = []corev1.Container{{Image: "x.example/sig-storage/snapshot-controller:v8.2.0"}}
			in.Deployments = append(in.Deployments, d)
		}, "", "well", true, 0},
		"pods without a place, in one finding": {func(in *assess.Input) {
			plugin(5, 0, 0)(in)
			for _, n := range []string{"e", "d", "c", "b", "a"} {
				in.Pods = append(in.Pods, homeless(csiNode, n, "0/5 nodes are available: 1 Insufficient cpu.", time.Hour))
			}
		}, "", "its pod has no place on 5 nodes (a, b, c, and 2 more): Insufficient cpu", false, 0},
		// The controller asks for a node for each replica: as many as there are control-plane nodes are enough.
		"replicas without a place on a small control plane": {func(in *assess.Input) {
			in.Deployments[0] = deployment(3, 3, 1)
			in.Pods = []*corev1.Pod{homeless("vsphere-csi-controller", "", "0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules.", time.Hour)}
		}, "", "well", true, 0},
		"a pod that ends needs no place": {func(in *assess.Input) {
			in.Deployments[0] = deployment(1, 1, 0)
			in.Pods = []*corev1.Pod{homeless("vsphere-csi-controller", "", "0/3 nodes are available: 1 Insufficient cpu.", time.Hour)}
			in.Pods[0].DeletionTimestamp = &metav1.Time{Time: now}
		}, "", "rolling: has 0 of 1 pods available", false, 0},
		"what may not be read of it":             {unread, "", "apply the RBAC manifests", false, 0},
		"what may not be read of another driver": {unread, matrix.CPI, "well", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			in := healthy()
			c.edit(&in)
			rep, driver := assess.Assess(in), cmp.Or(c.driver, matrix.CSI)
			h := rep.Drivers[driver]
			said, unserved := strings.CutSuffix(c.is, "; none is served")
			is, waits, _ := strings.Cut(said, ": ")
			switch is {
			case "well":
				require.True(t, h.Healthy(), h)
				require.Equal(t, map[matrix.Driver]string{matrix.CPI: "1.33.1", matrix.CSI: "3.5.1"}[driver], h.Version)
			case "rolling", "serving":
				require.Equal(t, is == "serving", h.Healthy())
				require.NoError(t, h.Err())
				require.NotEmpty(t, h.Waits())
				require.Contains(t, h.Waits(), waits)
				require.NotContains(t, h.Waits(), "no place")
				lacks := func(w assess.Workload) bool { return !in.RolledOut(w) }
				require.Equal(t, c.complete, !slices.ContainsFunc(in.Workloads(driver), lacks))
			default:
				require.Len(t, fault.All(h.Err()), 1)
				require.Contains(t, fault.Text(h.Err()), said)
			}
			require.Equal(t, unserved, h.Unserved)
			require.Equal(t, c.complete, h.Complete, h)
			require.Equal(t, len(in.Nodes)-c.unready, rep.NodesReady)
			require.Empty(t, in.Foreign())
		})
	}
}

func unread(in *assess.Input) {
	in.AddFault(matrix.CSI, &fault.Error{Reason: fault.Forbidden, Op: "list", Subject: "pods", Err: errors.New("is forbidden"), Hint: "apply the RBAC manifests"})
}

func TestForeignInstallationsAreFoundAndDoNotCount(t *testing.T) {
	helm := daemonSet("kube-system", "vsphere-cpi", "", "", 1, 1, 1)
	helm.Labels, helm.Annotations = nil, map[string]string{"meta.helm.sh/release-name": "cpi"}
	in := healthy()
	in.DaemonSets = append(in.DaemonSets, helm)
	foreign := in.Foreign()
	require.Len(t, foreign, 1)
	require.Equal(t, "cpi", foreign[0].Helm)
	require.Len(t, in.Workloads(matrix.CPI), 1)
	in.DaemonSets = append(in.DaemonSets, daemonSet("vmware-system-csi", "vsphere-csi-node-windows", "csi", "3.6.0", 0, 0, 0))
	require.Len(t, in.Workloads(matrix.CSI), 3, "a Windows plugin of ours counts, though no node runs it")
	other := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}}
	_, ok := assess.FromDaemonSet(&other)
	require.False(t, ok)
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func pod(app, container string, state corev1.ContainerState, last string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: app + "-1", Labels: map[string]string{"app": app}, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	p.Spec.NodeName = "w1"
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: state}}
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
	failsWith := func(cause string) func(*assess.Input) { // as the driver writes it
		return crash("vsphere-csi-node", `{"level":"error","caller":"x/y.go:1","msg":"cannot start: `+cause+`"}`)
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
		"a wrong password": {failsWith(`ServerFaultCode: Cannot complete login due to an incorrect user name or password.`),
			matrix.CSI, fault.Unauthorized, "user and password"},
		"a wrong name": {failsWith(`x509: certificate is not valid for any names, but wanted to match vc`),
			matrix.CSI, fault.CertificateInvalid, "a name that is in"},
		"no address": {failsWith(`x509: cannot validate certificate for 192.0.2.9 because it does not contain any IP SANs`),
			matrix.CSI, fault.CertificateInvalid, "a name that is in"},
		"no such datacenter, as klog writes it": {crash("vsphere-csi-node",
			"E0822 10:00:00.000000       1 connectionmanager.go:1] datacenter 'east' not found\n"),
			matrix.CSI, fault.NotFound, "folder/name"},
		"a privilege lacks": {failsWith(`datacenter 'east': ServerFaultCode: NoPermission`),
			matrix.CSI, fault.Forbidden, "privilege"},
		"snapshot kinds absent": {func(in *assess.Input) {
			in.SnapshotCRDs = false
			crash("csi-snapshotter", "boom")(in)
		}, matrix.CSI, fault.Incomplete, "snapshot kinds are not installed"},
		"CSIDriver absent":  {func(in *assess.Input) { in.CSIDriver = nil }, matrix.CSI, fault.NotFound, "CSIDriver"},
		"pod security":      {refused(`violates PodSecurity "baseline:latest": privileged`), matrix.CSI, fault.Forbidden, "pod-security.kubernetes.io/enforce=privileged"},
		"no SCC":            {refused(scc), matrix.CSI, fault.Forbidden, "bind the SecurityContextConstraints"},
		"another admission": {refused(`admission webhook "policy.example" denied the request`), matrix.CSI, fault.Forbidden, "which admission policy refuses them"},
		"quota, of a Deployment": {func(in *assess.Input) {
			in.Deployments[0] = deployment(1, 0, 0)
			in.Deployments[0].Status.Conditions = []appsv1.DeploymentCondition{{
				Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: quota}}
		}, matrix.CSI, fault.Forbidden, "raise the namespace's quota"},
		"taint stays": {func(in *assess.Input) {
			in.Nodes[1].Spec.Taints = []corev1.Taint{{Key: assess.TaintUninitialized}}
		}, matrix.CPI, fault.Incomplete, "VMware Tools"},
		"never tainted":  {func(in *assess.Input) { in.Nodes[1].Spec.ProviderID = "" }, matrix.CPI, fault.Incomplete, "--cloud-provider=external"},
		"k3s":            {func(in *assess.Input) { in.Nodes[1].Spec.ProviderID = "k3s://w1" }, matrix.CPI, fault.Conflict, "k3s://w1"},
		"not registered": {func(in *assess.Input) { in.CSINodes = in.CSINodes[:2] }, matrix.CSI, fault.Incomplete, "customKubeletPath"},
		"no topology":    {func(in *assess.Input) { in.Topology = true }, matrix.CSI, fault.Incomplete, "without topology"},
		"topology error": {func(in *assess.Input) { in.NodeTopologies = map[string]string{"w1": "nodeVM was not found"} }, matrix.CSI, fault.Incomplete, "): topology cannot be found out: nodeVM was not found"},
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

func TestVersionIsObservedFromLabelsElseFromImages(t *testing.T) {
	ds := daemonSet("kube-system", "vsphere-cloud-controller-manager", "cpi", "1.33.1", 1, 1, 1)
	w, ok := assess.FromDaemonSet(&ds)
	require.True(t, ok)
	require.Equal(t, "1.33.1", w.Version)
	ds.Labels = nil
	zeros := strings.Repeat("0", 64)
	for image, version := range map[string]string{
		"gcr.io/cloud-provider-vsphere/cpi/release/manager:v1.26.0":         "1.26.0",
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

// homeless is a pod that the scheduler found no node for, some time ago; node is the only
// one that it may run on, as a DaemonSet's.
func homeless(app, node, says string, ago time.Duration) *corev1.Pod {
	p := pod(app, "driver", corev1.ContainerState{}, "")
	p.Spec.NodeName = ""
	p.Status.ContainerStatuses = nil
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: says, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
	}}
	if node != "" {
		only := corev1.NodeSelectorRequirement{
			Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
		term := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{only}}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}}
	}
	return p
}

// What the scheduler of Kubernetes says (1.33), and what is said of it.
func TestPodsWithoutAPlaceAreNamedWithTheNodeAndTheRemedy(t *testing.T) {
	const others = ", 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
	for name, c := range map[string]struct {
		app, node, says, message, remedy string
	}{
		"no room for another pod": {"vsphere-csi-node", "w2", "0/3 nodes are available: 1 Too many pods" + others,
			"its pod has no place on node w2: Too many pods", "maxPods"},
		"no processor": {"vsphere-csi-node", "w2", "0/3 nodes are available: 1 Insufficient cpu" + others,
			"its pod has no place on node w2: Insufficient cpu", "make room"},
		"a taint": {"vsphere-csi-controller", "", "0/3 nodes are available: 1 node(s) had untolerated taint {dedicated: db}, 2 node(s) didn't match Pod's node affinity/selector" + others,
			"its pods have no place: node(s) had untolerated taint {dedicated: db}", "tolerate"},
		"no node with the label": {"vsphere-csi-controller", "", "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: none",
			"its pods have no place: node(s) didn't match Pod's node affinity/selector", "node-role.kubernetes.io/control-plane"},
		"a port": {"vsphere-csi-node", "w1", "0/3 nodes are available: 1 node(s) didn't have free ports for the requested pod ports" + others,
			"its pod has no place on node w1: node(s) didn't have free ports for the requested pod ports", "listens"},
		"something new": {"vsphere-csi-node", "w1", "0/3 nodes are available: 1 moon is not full. preemption: none",
			"its pod has no place on node w1: 0/3 nodes are available: 1 moon is not full.", "describe pod"},
	} {
		for _, finding := range []bool{false, true} {
			in := healthy()
			in.DaemonSets[1] = daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.5.1", 3, 2, 2)
			in.Deployments[0] = deployment(1, 0, 0)
			ago := assess.Grace - time.Second
			if finding {
				ago = assess.Grace
			}
			in.Pods = []*corev1.Pod{homeless(c.app, c.node, c.says, ago)}
			var found []assess.Finding
			for _, f := range assess.Assess(in).Drivers[matrix.CSI].Findings {
				if f.Message == c.message {
					found = append(found, f)
				}
			}
			require.Len(t, found, 1, name)
			require.Equal(t, !finding, found[0].Waiting, name)
			require.Equal(t, fault.Incomplete, found[0].Reason)
			require.Contains(t, found[0].Remedy, c.remedy, name)
		}
	}
}

// rolling is a cluster in which nodes have pods of the node plugin: of an earlier template (old, broken, ends) or the
// current one (new, starting, leaves), or none. A node is not ready if its old pod is gone, or it got or lost the new
// one. It went some time after that pod was made. Nodes called y are young.
func rolling(pods string, went time.Duration) assess.Input {
	in := healthy()
	in.Nodes = nil
	in.DaemonSets = []appsv1.DaemonSet{daemonSet("vmware-system-csi", "vsphere-csi-node", "csi", "3.7.3", 0, 0, 0)}
	in.Deployments[0].Labels = labels("csi", "3.7.3")
	d := &in.DaemonSets[0]
	d.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "2"}
	for _, text := range strings.Fields(pods) {
		name, all, _ := strings.Cut(text, "=")
		n := node(name, !slices.Contains([]string{"gone", "got", "lost"}, all), false)
		if strings.HasPrefix(name, "y") {
			n.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
		}
		in.Nodes, in.CSINodes = append(in.Nodes, n), append(in.CSINodes, registered(name))
		d.Status.DesiredNumberScheduled++
		for _, is := range strings.FieldsFunc(all, func(r rune) bool { return r == '+' }) {
			p := pod(d.Name, "driver", corev1.ContainerState{}, "")
			p.Spec.NodeName, p.Labels["pod-template-generation"] = name, "1"
			if slices.Contains([]string{"new", "starting", "leaves", "got", "lost"}, is) {
				p.Labels["pod-template-generation"] = "2"
				d.Status.UpdatedNumberScheduled++
			}
			if slices.Contains([]string{"old", "new", "ends", "leaves"}, is) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				d.Status.NumberAvailable++
			}
			if is == "ends" || is == "leaves" || is == "lost" {
				p.DeletionTimestamp = &metav1.Time{Time: now}
			}
			n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(p.CreationTimestamp.Add(went))
			in.Pods = append(in.Pods, p)
		}
	}
	return in
}

// Nodes that are not ready are named, and neither stop a rollout nor count for its progress;
// unless several went soon after they had got the new pod.
func TestARollOutGoesOnWithoutNodesThatAreNotReady(t *testing.T) {
	const (
		minute, hour = time.Minute, time.Hour
		late         = "node c is not ready and gets its new pod when it returns"
		unreachable  = corev1.TaintNodeUnreachable
	)
	for name, c := range map[string]struct {
		pods            string        // by node; gone and got are the old and new one of a node that is not ready
		after           time.Duration // after its pod was made such a node went; 0: before
		taint           string        // of such nodes
		complete        bool
		says            string
		away            int
		requested, done int64
	}{
		"one is away":           {"a=old b=old c=gone", 0, "", false, "has 0 of 3 pods updated; " + late, 1, 2, 0},
		"it went meanwhile":     {"a=new b=old c=got", minute, "", false, "has 2 of 3 pods updated", 1, 2, 1},
		"it is back":            {"a=new b=new c=starting", 0, "", false, "has 2 of 3 pods available, waiting for node c", 0, 3, 2},
		"two went by it":        {"a=new b=old c=got d=got", minute, "", false, "waiting for 2 nodes (c, d)", 0, 4, 1},
		"two had it for long":   {"a=new c=got d=got", hour, "", true, "", 0, 1, 1},
		"two got it while away": {"a=new b=old c=got d=got", 0, "", false, "has 3 of 4 pods updated", 2, 2, 1},
		"it is not counted":     {"a=new b=old c=gone", 0, unreachable, false, "1 of 2 pods updated; " + late, 1, 2, 1},
		"all are away":          {"a=gone b=gone", 0, "", false, "has 0 of 2 pods updated; 2 nodes are not ready", 2, 0, 0},
		"all are away with it":  {"a=got", hour, "", false, "has 0 of 1 pods available", 0, 0, 0},
		"a young one starts":    {"a=new b=new y=starting", 0, "", true, "", 0, 2, 2},
		"a young one has it":    {"a=old y=new", 0, "", false, "has 1 of 2 pods updated", 0, 2, 1},
		"young ones come up":    {"a=new y1=starting y2=starting", minute, "", true, "", 0, 1, 1},
		"a young one waits":     {"a=new y=broken", 0, "", true, "", 0, 1, 1},
		"all fail, one young":   {"a=starting b=starting y=starting", 0, "", false, "has 0 of 3 pods available", 0, 2, 0},
		"none runs, all young":  {"y1=starting y2=starting", 0, "", false, "has 0 of 2 pods available", 0, 0, 0},
		"many are away": {"a=new f=gone e=gone d=gone c=gone", 0, "", true,
			"4 nodes are not ready and get their new pods when they return: c, d, e, and 1 more", 4, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			in := rolling(c.pods, c.after)
			d := &in.DaemonSets[0]
			for _, n := range in.Nodes {
				if c.taint != "" && assess.Readiness(n).Status != corev1.ConditionTrue {
					n.Spec.Taints = []corev1.Taint{{Key: c.taint, Effect: corev1.TaintEffectNoSchedule}}
					d.Status.DesiredNumberScheduled--
				}
			}
			h := assess.Assess(in).Drivers[matrix.CSI]
			require.Equal(t, c.complete, h.Complete, h)
			text := h.Waits() + h.Note
			require.Contains(t, text, c.says)
			require.Equal(t, c.says == "", text == "", text)
			w, _ := assess.FromDaemonSet(d)
			require.Equal(t, c.away, in.AwayFrom(w))
			requested, done := in.Progress(w)
			require.Equal(t, []int64{c.requested, c.done}, []int64{requested, done})
		})
	}
}

// The pods of an earlier template are available too, but no progress.
func TestProgressOfADeployment(t *testing.T) {
	for name, c := range map[string]struct {
		all, updated, available int32
		behind                  bool
		done                    int64
	}{
		"before its controller saw it": {all: 3, updated: 3, available: 3, behind: true},
		"the first pod starts":         {all: 4, updated: 1, available: 3},
		"the first pod crashes":        {all: 4, updated: 2, available: 2},
		"the first pod is ready":       {all: 4, updated: 1, available: 4, done: 1},
		"all are":                      {all: 3, updated: 3, available: 3, done: 3},
	} {
		d := deployment(3, c.updated, c.available)
		if d.Status.Replicas = c.all; c.behind {
			d.Generation = 2
		}
		w, _ := assess.FromDeployment(&d)
		_, done := (&assess.Observed{}).Progress(w)
		require.Equal(t, c.done, done, name)
	}
}

// Which pods on canary nodes are replaced, and when all of them are well. Another node that has a new pod
// has joined, or its pod was deleted.
func TestCanaries(t *testing.T) {
	const ofBefore = "a has the pod of before; b has the pod of before"
	for name, c := range map[string]struct {
		pods    string
		edit    func(*appsv1.DaemonSet)
		went    time.Duration // after nodes that are away had got the pod; default: a minute
		idle    bool
		chosen  string // default: a and b
		updated int
		missing []string
		replace string // node
		why     string
		others  []string
	}{
		"others have it":                 {pods: "d=new c=starting b=new a=new", updated: 2, others: []string{"c", "d"}},
		"others lack it":                 {pods: "a=new b=new c=old d=leaves", updated: 2},
		"nothing was done":               {pods: "c=old b=old a=old", replace: "a", why: ofBefore},
		"the first is replaced":          {pods: "a=starting b=old c=old", why: "b has the pod of before; the pod on a is not ready"},
		"the first has no pod":           {pods: "a= b=old c=old", missing: []string{"a"}, why: "a has no pod of it; b has the pod of before"},
		"the first ends beside its heir": {pods: "a=new+ends b=old", why: "b has the pod of before; the pod on a is not ready"},
		"the pod of before is not well":  {pods: "a=new b=broken c=old", updated: 1, replace: "b", why: "b has the pod of before"},
		"one is away":                    {pods: "a=gone b=new", updated: 1},
		"one went with its new pod":      {pods: "a=got b=new", updated: 1, why: "a is not ready, and has the new pod"},
		"one went, and its pod leaves":   {pods: "a=lost b=new", updated: 1, why: "a is not ready, and has the new pod"},
		"one went before the others":     {pods: "a=got b=old", why: "a is not ready, and has the new pod; b has the pod of before"},
		"one went later":                 {pods: "a=got b=new", went: time.Hour, updated: 1},
		"all are away":                   {pods: "a=got b=got", why: "no chosen node is ready (a, b)"},
		"all are off":                    {pods: "a=gone b=gone", idle: true, why: "no chosen node is ready (a, b)"},
		"pods are replaced by others": {pods: "a=old b=old", why: ofBefore, edit: func(d *appsv1.DaemonSet) {
			d.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
		}},
		"it is not known yet": {pods: "a=old b=old", why: ofBefore, edit: func(d *appsv1.DaemonSet) { d.Status.ObservedGeneration-- }},
		"nobody is chosen":    {pods: "a=old", chosen: "none", idle: true, why: `no node matches the canary selector "role=none"`},
	} {
		t.Run(name, func(t *testing.T) {
			in := rolling(c.pods, cmp.Or(c.went, time.Minute))
			in.DaemonSets[0].Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
			if c.edit != nil {
				c.edit(&in.DaemonSets[0])
			}
			for _, n := range in.Nodes {
				if n.Labels["role"] = "first"; n.Name > "b" {
					n.Labels["role"] = "other"
				}
			}
			got := in.Canaries(apilabels.SelectorFromSet(apilabels.Set{"role": cmp.Or(c.chosen, "first")}))
			require.Equal(t, c.why, got.Why)
			require.Equal(t, c.idle, got.Idle)
			require.Equal(t, c.updated, got.Updated)
			require.Equal(t, c.missing, got.Missing)
			var others []string
			for _, n := range got.Others {
				others = append(others, n.Name)
			}
			require.Equal(t, c.others, others)
			require.True(t, c.chosen != "" || slices.Equal(got.Nodes, []string{"a", "b"}), got.Nodes)
			require.Equal(t, c.replace, ptr.Deref(got.Replace, corev1.Pod{}).Spec.NodeName)
		})
	}
}
