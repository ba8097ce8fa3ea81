package e2e

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/realnode"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/site"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

const csiNamespace = "vmware-system-csi"

// The drivers on nodes that really pull and run: what the operator installs, kubelets of
// Kubernetes and containerd take from the mirror with the login that pods carry, by digest,
// and run under the security contexts that upstream ships. Each step starts from what the
// one before has left.
func TestRealNodes(t *testing.T) {
	if !realnode.Enter(t) {
		return
	}
	l := newJob(t, world.UpstreamOptions{
		Releases: []string{"cpi@1.33.1", "csi@3.5.1", "csi@3.7.3", "snapshot-controller@8.2.0"}, Hurry: true, Program: realnode.Driver(t),
	}, site.Options{Kubelets: true, Address: realnode.Address})
	nodes := realnode.New(t, realnode.Options{Dir: l.path("nodes"), Cluster: l.site.Cluster, Mirror: l.site.Mirror})
	machines := l.site.Machines
	nodes.Join(t, realnode.Spec{Node: machines[0]})
	l.deliver("stable", "vdo", "cpi@1.33.1", "csi@3.5.1")
	l.prepare()
	l.startOperator()
	l.applyYAML(l.site.Resources(site.ResourceOptions{Namespace: namespace, Reference: l.reference("stable")}))
	l.installed("site", "1.33.1", "3.5.1")
	l.podsRunWhatTheMirrorHas()

	worker := nodes.Join(t, realnode.Spec{Node: machines[1]})
	l.nodePodIsReady(worker.Name)
	l.installed("site", "1.33.1", "3.5.1")

	before := l.podsOn(worker.Name)
	worker.RestartKubelet(t)
	l.nodePodIsReady(worker.Name)
	require.Equal(t, before, l.podsOn(worker.Name), "nobody replaced or restarted a pod")
	worker.Restart(t)
	l.restarted(worker.Name, before)
	l.installed("site", "1.33.1", "3.5.1")

	l.drainedDuringAnUpgrade(worker.Name)
	l.aNodeWithoutRoomOrImage(nodes, machines[2])
	l.aDriversLastWords(worker)
	l.upstreamNamesLeadToTheMirror(worker)
	require.Zero(t, l.strayed.Load(), "connections left the site")
	l.noSecretLeaks()
}

// driverPods are those of the drivers.
func (l *job) driverPods() (all []corev1.Pod) {
	for _, ns := range []string{"kube-system", csiNamespace} {
		var list corev1.PodList
		require.NoError(l.t, l.client.List(l.ctx, &list, client.InNamespace(ns)))
		all = append(all, list.Items...)
	}
	require.NotEmpty(l.t, all)
	return all
}

// podsRunWhatTheMirrorHas: every container is of the mirror, by digest; each pull was let in
// by the login that the pods carry, since the nodes have none; and what is not root upstream
// is not root here.
func (l *job) podsRunWhatTheMirrorHas() {
	users := map[string]string{}
	for _, p := range l.driverPods() {
		require.NotEmpty(l.t, p.Spec.ImagePullSecrets, p.Name)
		for i, c := range p.Spec.Containers {
			repository, digest, ok := strings.Cut(c.Image, "@")
			require.True(l.t, ok, c.Image)
			require.Equal(l.t, l.site.Mirror.Host+"/vdo/drivers", repository)
			status := p.Status.ContainerStatuses[slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })]
			require.Contains(l.t, status.ImageID, "sha256:", "%s of %s", c.Name, p.Name)
			require.NotNil(l.t, status.State.Running, "%s of %s", c.Name, p.Name)
			require.NotEmpty(l.t, digest)
			if sc := p.Spec.Containers[i].SecurityContext; sc != nil && sc.RunAsUser != nil {
				users[c.Name] = fmt.Sprint(*sc.RunAsUser)
			}
		}
	}
	require.Equal(l.t, "65532", users["vsphere-csi-controller"])
	pulled := 0
	for _, r := range l.site.Mirror.Requests() {
		if strings.Contains(r.Path, "/vdo/drivers/") && r.Status == http.StatusOK {
			require.True(l.t, r.Authorization, "%s %s", r.Method, r.Path)
			pulled++
		}
	}
	require.Positive(l.t, pulled)
}

// nodePodIsReady waits until the storage driver's pod on a node is ready.
func (l *job) nodePodIsReady(node string) {
	l.t.Helper()
	l.eventually("the storage driver's pod on "+node, func() string {
		var list corev1.PodList
		if err := l.client.List(l.ctx, &list, client.InNamespace(csiNamespace), client.MatchingLabels{"app": "vsphere-csi-node"}); err != nil {
			return err.Error()
		}
		for _, p := range list.Items {
			if p.Spec.NodeName == node && p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				return ""
			}
		}
		return fmt.Sprintf("%d pods, none ready there", len(list.Items))
	})
}

// podsOn returns the pods of the drivers on a node, with what runs of them.
func (l *job) podsOn(node string) map[types.UID][]string {
	all := map[types.UID][]string{}
	for _, p := range l.driverPods() {
		if p.Spec.NodeName != node || p.DeletionTimestamp != nil {
			continue
		}
		for _, c := range p.Status.ContainerStatuses {
			all[p.UID] = append(all[p.UID], c.ContainerID)
		}
	}
	require.NotEmpty(l.t, all, node)
	return all
}

// restarted waits until each container of a node is another one, and its pods the same.
func (l *job) restarted(node string, before map[types.UID][]string) {
	l.t.Helper()
	l.eventually("pods run again after the node restarted", func() string {
		for uid, was := range before {
			is := l.podsOn(node)[uid]
			if len(is) != len(was) || slices.ContainsFunc(is, func(id string) bool { return id == "" || slices.Contains(was, id) }) {
				return fmt.Sprintf("pod %s has containers %v, had %v", uid, is, was)
			}
		}
		return ""
	})
	l.nodePodIsReady(node)
}

// drainedDuringAnUpgrade upgrades while a node is emptied: what can go elsewhere goes, the
// node's own pods are upgraded in their place, and the upgrade comes to its end.
func (l *job) drainedDuringAnUpgrade(node string) {
	l.deliver("stable", "vdo", "cpi@1.33.1", "csi@3.7.3")
	was := l.revision()
	l.ask(&v1alpha1.DriverBundle{}, "site")
	l.eventually("the upgrade has begun", func() string { // one that has not waits for the node
		if now := l.revision(); now == was {
			return now
		}
		return ""
	})
	l.cordon(node, true)
	for _, p := range l.driverPods() {
		if p.Spec.NodeName == node && !slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" }) {
			require.NoError(l.t, client.IgnoreNotFound(l.client.SubResource("eviction").Create(l.ctx, &p, &policyv1.Eviction{})))
		}
	}
	l.installed("site", "1.33.1", "3.7.3")
	l.nodePodIsReady(node)
	for _, p := range l.driverPods() {
		if p.Spec.NodeName == node && p.DeletionTimestamp == nil {
			require.Equal(l.t, "DaemonSet", p.OwnerReferences[0].Kind, p.Name)
		}
	}
	l.cordon(node, false)
}

func (l *job) revision() string {
	l.t.Helper()
	return revisions{Revisions: theSites(l, &v1alpha1.VDOConfig{}).Status.Revisions}.csi().Name
}

func (l *job) cordon(node string, yes bool) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	require.NoError(l.t, l.client.Patch(l.ctx, n, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, yes))))
}

// aNodeWithoutRoomOrImage joins a node whose only place is taken, and empties it while the
// mirror lacks one image. The VDOConfig says what is amiss, and where.
func (l *job) aNodeWithoutRoomOrImage(nodes *realnode.Nodes, machine cluster.Node) {
	l.t.Helper()
	small := nodes.Join(l.t, realnode.Spec{Node: machine, MaxPods: 1, Taken: true})
	l.says(&v1alpha1.VDOConfig{}, v1alpha1.ConditionCSI, "no place on node "+small.Name, "Too many pods")

	image := l.image("node-driver-registrar")
	_, digest, _ := strings.Cut(image, "@")
	l.site.Mirror.Fail(registry.Fault{Match: registry.Match{Path: digest}, Status: http.StatusNotFound, Body: `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`})
	small.MakeRoom(l.t)
	l.says(&v1alpha1.VDOConfig{}, v1alpha1.ConditionCSI,
		"container node-driver-registrar cannot get its image on node "+small.Name, image, "the mirror lacks the image")
	l.site.Mirror.Heal()
	l.nodePodIsReady(small.Name)
	l.installed("site", "1.33.1", "3.7.3")
}

// image returns the reference of a container of the storage driver's node pods.
func (l *job) image(container string) string {
	for _, p := range l.driverPods() {
		for _, c := range p.Spec.Containers {
			if c.Name == container {
				return c.Image
			}
		}
	}
	require.Fail(l.t, "no container", container)
	return ""
}

// aDriversLastWords: a node plugin that falls over is named with the line of its log, which
// the API server has from the kubelet, and with the remedy.
func (l *job) aDriversLastWords(node *realnode.Node) {
	l.t.Helper()
	const file = "/var/lib/kubelet/last-words"
	node.Write(l.t, file, []byte("failed to retrieve nodeVM "+node.SystemUUID+": virtual machine wasn't found"))
	l.says(&v1alpha1.VDOConfig{}, v1alpha1.ConditionCSI,
		"on node "+node.Name, "virtual machine wasn't found", "correct spec.datacenters")
	node.Write(l.t, file, nil)
	l.nodePodIsReady(node.Name)
	l.installed("site", "1.33.1", "3.7.3")
}

// upstreamNamesLeadToTheMirror: with the bundle pushed under upstream's paths, and with what
// mirror-config writes for containerd, a node runs an image by the name that upstream gives
// it. There is no upstream.
func (l *job) upstreamNamesLeadToTheMirror(node *realnode.Node) {
	l.run(l.isolated, "vdo-bundle push drivers.tar "+l.reference("paths")+" --layout paths --ca-file mirror-ca.crt")
	l.run(l.isolated, "vdo-bundle mirror-config drivers.tar "+l.site.Mirror.Host+"/vdo/drivers --runtime containerd --with-login --mirror-only -o "+
		node.Hosts()+" --node-ca "+l.path("site/mirror-ca.crt"))
	l.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "by-its-upstream-name"},
		Spec: corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{
			Name: "c", Image: "registry.k8s.io/csi-vsphere/syncer:v3.7.3", ImagePullPolicy: corev1.PullAlways,
		}}},
	})
	l.eventually("a pod by its upstream name", func() string {
		var p corev1.Pod
		if err := l.client.Get(l.ctx, client.ObjectKey{Namespace: "default", Name: "by-its-upstream-name"}, &p); err != nil {
			return err.Error()
		}
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("%+v", p.Status)
		}
		return ""
	})
	config, err := os.ReadFile(node.Hosts() + "/registry.k8s.io/hosts.toml")
	require.NoError(l.t, err)
	require.Contains(l.t, string(config), l.site.Mirror.Host)
}
