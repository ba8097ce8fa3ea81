package scale

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

const (
	planes   = 3  // control-plane nodes, the first ones
	parallel = 16 // requests of the play at once
)

// play writes what kubelets, workload controllers and drivers write.
type play struct {
	client.Client
	nodes int
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d.cluster.site.example", i) }

func uuid(i int) string { return fmt.Sprintf("4200%04x-0000-4000-8000-%012x", i, i) }

// each does something n times.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// node is of the size that a node has after a while: some labels, fifty images.
func node(i int, initialized bool) *corev1.Node {
	name := nodeName(i)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
		corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%8), corev1.LabelTopologyRegion: "region-a", corev1.LabelInstanceTypeStable: "vsphere-vm.cpu-8.mem-32gb.os-photon",
		"run.tanzu.vmware.com/tkr": "v1.33.1---vmware.1-fips-tkg.2", "run.tanzu.vmware.com/kubernetesDistributionVersion": "v1.33.1_vmware.1-fips-tkg.2", "node.cluster.x-k8s.io/esxi-host": fmt.Sprintf("esx-%04d.site.example", i/16),
	}, Annotations: map[string]string{
		"cluster.x-k8s.io/machine": "machine-" + name, "cluster.x-k8s.io/cluster-name": "site", "cluster.x-k8s.io/owner-kind": "MachineSet", "kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/containerd/containerd.sock",
		"csi.volume.kubernetes.io/nodeid": `{"csi.vsphere.vmware.com":"` + uuid(i) + `"}`, "volumes.kubernetes.io/controller-managed-attach-detach": "true",
	}}}
	if i < planes {
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule})
	}
	if initialized {
		n.Spec.ProviderID = "vsphere://" + uuid(i)
	} else {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: cluster.TaintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	return n
}

func nodeStatus(i int) corev1.NodeStatus {
	now := metav1.Now()
	s := corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: nodeName(i)}, {Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}},
		Capacity:  corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("110"), "ephemeral-storage": resource.MustParse("100Gi")},
		NodeInfo: corev1.NodeSystemInfo{SystemUUID: uuid(i), MachineID: uuid(i), BootID: uuid(i), OperatingSystem: "linux", Architecture: "amd64", KernelVersion: "6.1.102-4.ph5-esx",
			OSImage: "VMware Photon OS/Linux", ContainerRuntimeVersion: "containerd://1.7.20", KubeletVersion: "v1.33.1+vmware.1"},
	}
	s.Allocatable = s.Capacity
	for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable, corev1.NodeReady} {
		status := corev1.ConditionFalse
		if t == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		s.Conditions = append(s.Conditions, corev1.NodeCondition{Type: t, Status: status, LastHeartbeatTime: now, LastTransitionTime: now, Reason: "KubeletHasSufficient", Message: "kubelet has sufficient of what it needs"})
	}
	for k := range 50 {
		s.Images = append(s.Images, corev1.ContainerImage{SizeBytes: 100 << 20, Names: []string{
			fmt.Sprintf("mirror.site.example/project-%d/some/image@sha256:%064x", k, k), fmt.Sprintf("mirror.site.example/project-%d/some/image:v1.%d.0", k, k)}})
	}
	return s
}

// join registers a node as a kubelet does; it waits for the cloud provider.
func (p *play) join(ctx context.Context, i int) error {
	n := node(i, false)
	if err := p.Create(ctx, n); err != nil {
		return err
	}
	n.Status = nodeStatus(i)
	if err := p.Status().Update(ctx, n); err != nil {
		return err
	}
	c := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}},
		Annotations: map[string]string{"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"}}}
	return p.Create(ctx, c)
}

// initialise does the cloud provider's part.
func (p *play) initialise(ctx context.Context, i int) error {
	var n corev1.Node
	if err := p.Get(ctx, client.ObjectKey{Name: nodeName(i)}, &n); err != nil {
		return err
	}
	fresh := node(i, true)
	n.Spec.ProviderID, n.Spec.Taints = fresh.Spec.ProviderID, fresh.Spec.Taints
	return p.Update(ctx, &n)
}

// register does the part of the storage driver's plug-in.
func (p *play) register(ctx context.Context, i int) error {
	var c storagev1.CSINode
	if err := p.Get(ctx, client.ObjectKey{Name: nodeName(i)}, &c); err != nil {
		return err
	}
	if len(c.Spec.Drivers) > 0 {
		return nil
	}
	c.Spec.Drivers = append(c.Spec.Drivers, storagev1.CSINodeDriver{Name: drivers.CSIDriver, NodeID: uuid(i), Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(59))}})
	return p.Update(ctx, &c)
}

// roll makes the pods and the status of all workloads what their controllers would. It
// tells whether the cloud provider's and the storage driver's run.
func (p *play) roll(ctx context.Context) (cloud, storage bool, err error) {
	var sets appsv1.DaemonSetList
	if err := p.List(ctx, &sets); err != nil {
		return false, false, err
	}
	for i := range sets.Items {
		d := &sets.Items[i]
		count := p.nodes
		switch {
		case strings.Contains(d.Name, "windows"):
			count = 0
		case strings.Contains(d.Name, "cloud-controller-manager"):
			count, cloud = planes, true
		}
		if err := p.daemons(ctx, d, count); err != nil {
			return false, false, err
		}
		storage = storage || d.Name == "vsphere-csi-node"
	}
	var deployments appsv1.DeploymentList
	if err := p.List(ctx, &deployments); err != nil {
		return false, false, err
	}
	for i := range deployments.Items {
		if err := p.deployment(ctx, &deployments.Items[i]); err != nil {
			return false, false, err
		}
	}
	return cloud, storage, nil
}

// daemons makes a DaemonSet's pods of the present generation, and its status.
func (p *play) daemons(ctx context.Context, d *appsv1.DaemonSet, count int) error {
	generation := fmt.Sprint(d.Generation)
	n := int32(count) //nolint:gosec // some thousand
	if s := d.Status; s.ObservedGeneration == d.Generation && s.UpdatedNumberScheduled == n && s.NumberAvailable == n {
		return nil
	}
	if err := each(ctx, count, func(ctx context.Context, i int) error {
		return p.pod(ctx, d, &d.Spec.Template, fmt.Sprintf("%s-%05d", d.Name, i), nodeName(i), map[string]string{"pod-template-generation": generation, "controller-revision-hash": "r" + generation})
	}); err != nil {
		return err
	}
	if err := p.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
		return err
	}
	d.Status = appsv1.DaemonSetStatus{ObservedGeneration: d.Generation, DesiredNumberScheduled: n, CurrentNumberScheduled: n, UpdatedNumberScheduled: n, NumberReady: n, NumberAvailable: n}
	return p.Status().Update(ctx, d)
}

func (p *play) deployment(ctx context.Context, d *appsv1.Deployment) error {
	n := ptr.Deref(d.Spec.Replicas, 1)
	if s := d.Status; s.ObservedGeneration == d.Generation && s.UpdatedReplicas == n && s.AvailableReplicas == n {
		return nil
	}
	for i := range int(n) {
		if err := p.pod(ctx, d, &d.Spec.Template, fmt.Sprintf("%s-%d", d.Name, i), nodeName(i), map[string]string{"pod-template-hash": fmt.Sprint(d.Generation)}); err != nil {
			return err
		}
	}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
	return p.Status().Update(ctx, d)
}

// pod starts a pod, in the place of one of another generation.
func (p *play) pod(ctx context.Context, owner client.Object, t *corev1.PodTemplateSpec, name, onNode string, more map[string]string) error {
	was := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: name}}
	labels := maps.Clone(t.Labels)
	maps.Copy(labels, more)
	if err := p.Get(ctx, client.ObjectKeyFromObject(was), was); err == nil {
		if maps.Equal(was.Labels, labels) {
			return nil
		}
		if err := p.Delete(ctx, was, client.GracePeriodSeconds(0)); err != nil {
			return err
		}
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	kind := "DaemonSet"
	if _, ok := owner.(*appsv1.Deployment); ok {
		kind = "ReplicaSet"
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: name, Labels: labels, Annotations: t.Annotations,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(true)}}}, Spec: *t.Spec.DeepCopy()}
	pod.Spec.NodeName = onNode
	if err := p.Create(ctx, pod); err != nil {
		return err
	}
	pod.Status = podStatus(pod)
	return p.Status().Update(ctx, pod)
}

func podStatus(p *corev1.Pod) corev1.PodStatus {
	now := metav1.Now()
	s := corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: p.Status.QOSClass, HostIP: "10.0.0.1", PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, StartTime: &now}
	for _, t := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range p.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Ready: true, Started: ptr.To(true), Image: c.Image, ImageID: c.Image,
			ContainerID: fmt.Sprintf("containerd://%064x", len(p.Name)), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}})
	}
	return s
}
