package model

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// node is what became of a machine.
type node struct {
	controlPlane bool
	ready        bool
	lies         bool // it is Ready, and its pods fall over
}

// podState is what the kubelet of a pod says of it.
type podState struct {
	template string // the template that it was started from
	state    string // running, pull, crash, away
}

// workload is a DaemonSet or Deployment, whichever.
type workload struct {
	client.Object
	template *corev1.PodTemplateSpec
	places   []string // nodes, or numbers
}

func (x workload) key() string {
	return kindName(x.Object) + " " + x.GetNamespace() + "/" + x.GetName()
}

func kindName(o client.Object) string { return strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.") }

// play does what kubelets, the workload controllers, the garbage collector and the
// drivers themselves do, and tells whether anything was to do.
func (w *world) play() bool {
	did := w.collect()
	did = w.endNamespaces() || did
	for _, x := range w.workloads() {
		did = w.run(x) || did
	}
	return w.drivers() || did
}

// workloads are all DaemonSets and Deployments.
func (w *world) workloads() []workload {
	var all []workload
	var sets appsv1.DaemonSetList
	w.must(w.List(w.ctx, &sets))
	for i := range sets.Items {
		o := &sets.Items[i]
		x := workload{Object: o, template: &o.Spec.Template}
		for _, name := range w.names() {
			cloud, windows := strings.Contains(o.Name, "cloud-controller-manager"), strings.Contains(o.Name, "windows")
			if !windows && (w.nodes[name].controlPlane || !cloud) {
				x.places = append(x.places, name)
			}
		}
		all = append(all, x)
	}
	var deployments appsv1.DeploymentList
	w.must(w.List(w.ctx, &deployments))
	for i := range deployments.Items {
		o := &deployments.Items[i]
		x := workload{Object: o, template: &o.Spec.Template}
		for n := range *o.Spec.Replicas { // the API server sets it
			planes := w.planes()
			if strings.Contains(o.Name, "csi") { // one on each control-plane node
				if int(n) < len(planes) {
					x.places = append(x.places, planes[n])
				}
				continue
			}
			x.places = append(x.places, fmt.Sprint(n))
		}
		all = append(all, x)
	}
	return all
}

func (w *world) names() []string { return slices.Sorted(maps.Keys(w.nodes)) }

func (w *world) planes() []string {
	return slices.DeleteFunc(w.names(), func(n string) bool { return !w.nodes[n].controlPlane })
}

// podPrefix is what the names of a workload's pods begin with.
func podPrefix(kind, name string) string { return strings.ToLower(kind) + "-" + name + "-" }

func (x workload) podPrefix() string { return podPrefix(kindName(x.Object), x.GetName()) }

func podName(x workload, place string) types.NamespacedName {
	return types.NamespacedName{Namespace: x.GetNamespace(), Name: x.podPrefix() + place}
}

// run makes a workload's pods and status what its controllers would make them.
func (w *world) run(x workload) bool {
	if !x.GetDeletionTimestamp().IsZero() {
		w.stopPods(x.GetNamespace(), x.podPrefix(), nil)
		return true
	}
	current := text(x.template)
	did := w.stopPods(x.GetNamespace(), x.podPrefix(), x.places)
	var updated, ready int32
	for _, place := range x.places {
		key := podName(x, place)
		was := w.pods[key]
		template := current
		if !w.replaces(x, was) {
			template = was.template
		}
		is := w.kubelet(x, place, template, was)
		if is.template == current {
			updated++
		}
		if is.state == "running" {
			ready++
		}
		if is != was {
			did = true
			w.bringPod(x, key, place, was, is)
		}
	}
	return w.bringStatus(x, updated, ready) || did
}

// replaces tells whether a workload's controller puts a pod of its current template in the place of another one. A
// DaemonSet's does not under OnDelete, and takes none down that runs where too many do not.
func (w *world) replaces(x workload, was podState) bool {
	d, ok := x.Object.(*appsv1.DaemonSet)
	if !ok || was == (podState{}) {
		return true
	}
	down := 0
	for _, place := range x.places {
		if w.pods[podName(x, place)].state != "running" {
			down++
		}
	}
	by := d.Spec.UpdateStrategy
	return by.Type == appsv1.RollingUpdateDaemonSetStrategyType &&
		(was.state != "running" || down < by.RollingUpdate.MaxUnavailable.IntValue())
}

// kubelet says what becomes of a pod.
func (w *world) kubelet(x workload, place, template string, was podState) podState {
	n, onNode := w.nodes[place]
	switch {
	case onNode && !n.ready && was == (podState{}) && kindName(x.Object) == "DaemonSet":
		return podState{template, "away"} // its controller makes the pod all the same
	case onNode && !n.ready && was == (podState{}):
		return was // nothing is scheduled there
	case onNode && !n.ready:
		return podState{was.template, "away"}
	case (onNode && n.lies) || (w.falls != nil && w.falls(x, template)):
		return podState{template, "crash"}
	case was.template == template && was.state != "pull" && was != (podState{}):
		return podState{template, "running"}
	case w.pulls(x):
		return podState{template, "running"}
	}
	return podState{template, "pull"}
}

// pulls tells whether a node gets the images: the mirror asks for its login.
func (w *world) pulls(x workload) bool {
	for _, c := range append(slices.Clone(x.template.Spec.InitContainers), x.template.Spec.Containers...) {
		if !strings.HasPrefix(c.Image, w.site.Host+"/") {
			return false
		}
	}
	for _, ref := range x.template.Spec.ImagePullSecrets {
		var s corev1.Secret
		if w.Get(w.ctx, types.NamespacedName{Namespace: x.GetNamespace(), Name: ref.Name}, &s) == nil && slices.Contains(logins(s.Data[corev1.DockerConfigJsonKey]), w.site.Password) {
			return true
		}
	}
	return false
}

// logins are the passwords of a docker configuration.
func logins(data []byte) []string {
	var config struct {
		Auths map[string]struct{ Auth, Password string }
	}
	if json.Unmarshal(data, &config) != nil {
		return nil
	}
	var all []string
	for _, a := range config.Auths {
		decoded, _ := base64.StdEncoding.DecodeString(a.Auth) //nolint:errcheck // then it is none
		_, password, _ := strings.Cut(string(decoded), ":")
		all = append(all, password+a.Password)
	}
	return all
}

// stopPods removes the pods of a workload that are not in places any more.
func (w *world) stopPods(namespace, prefix string, places []string) (did bool) {
	for key := range w.pods {
		place, ok := strings.CutPrefix(key.Name, prefix)
		if ok && key.Namespace == namespace && !slices.Contains(places, place) {
			w.stopPod(key)
			did = true
		}
	}
	return did
}

func (w *world) stopPod(key types.NamespacedName) {
	delete(w.pods, key)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	w.must(client.IgnoreNotFound(w.Delete(w.ctx, pod, client.GracePeriodSeconds(0))))
}

// bringPod starts a pod again where its template changed, and writes its status.
func (w *world) bringPod(x workload, key types.NamespacedName, place string, was, is podState) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: x.template.Labels}}
	if was.template != is.template || apierrors.IsNotFound(w.Get(w.ctx, key, pod)) {
		w.stopPod(key)
		if _, ok := w.nodes[place]; ok {
			pod.Spec.NodeName = place
		}
		grace := int64(0)
		pod.Spec.TerminationGracePeriodSeconds = &grace
		if of := x.GetAnnotations()[appsv1.DeprecatedTemplateGeneration]; of != "" {
			pod.Labels = maps.Clone(pod.Labels)
			pod.Labels["pod-template-generation"] = of
		}
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "x"}}
		w.must(w.Create(w.ctx, pod))
	}
	pod.Status.Phase = corev1.PodRunning
	status := corev1.ContainerStatus{Name: "c", Image: "x", ImageID: "x"}
	ready := corev1.ConditionFalse
	switch is.state {
	case "running":
		ready, status.Ready = corev1.ConditionTrue, true
		status.State.Running = &corev1.ContainerStateRunning{}
	case "pull":
		pod.Status.Phase = corev1.PodPending
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "pull: 401 Unauthorized from node " + place}
	case "crash":
		status.RestartCount = 3
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: "node " + place + ": x509: certificate signed by unknown authority " + strings.Repeat("and so on ", 40)}
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	w.must(w.Status().Update(w.ctx, pod))
	w.pods[key] = is
}

// bringStatus writes a workload's status where it differs.
func (w *world) bringStatus(x workload, updated, ready int32) bool {
	n := int32(len(x.places)) //nolint:gosec // few
	was := x.DeepCopyObject()
	switch o := x.Object.(type) {
	case *appsv1.DaemonSet:
		o.Status = appsv1.DaemonSetStatus{ObservedGeneration: o.Generation, DesiredNumberScheduled: n, CurrentNumberScheduled: n,
			UpdatedNumberScheduled: updated, NumberReady: ready, NumberAvailable: ready, NumberUnavailable: n - ready}
	case *appsv1.Deployment:
		o.Status = appsv1.DeploymentStatus{ObservedGeneration: o.Generation, Replicas: n, UpdatedReplicas: updated, ReadyReplicas: ready,
			AvailableReplicas: ready, UnavailableReplicas: n - ready}
	}
	if equality.Semantic.DeepEqual(was, x.Object) {
		return false
	}
	err := w.Status().Update(w.ctx, x.Object)
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		w.must(err)
	}
	return true
}

// available counts the running pods of a workload that is up to date.
func (w *world) available(x workload) (exists, wanted int) {
	template := text(x.template)
	for _, place := range x.places {
		if n, ok := w.nodes[place]; ok && !n.ready {
			continue
		}
		wanted++
		if w.pods[podName(x, place)] == (podState{template, "running"}) {
			exists++
		}
	}
	return exists, wanted
}

// drivers does what the drivers do once they run: the cloud provider initialises
// nodes, the storage driver registers on them.
func (w *world) drivers() bool {
	did, cloud := false, false
	storage := map[string]bool{}
	for key, p := range w.pods {
		if p.state != "running" {
			continue
		}
		cloud = cloud || strings.HasPrefix(key.Name, "daemonset-vsphere-cloud-controller-manager-")
		if name, ok := strings.CutPrefix(key.Name, "daemonset-vsphere-csi-node-"); ok {
			storage[name] = true
		}
		if strings.HasPrefix(key.Name, "deployment-vsphere-csi-controller-") && !w.topology {
			w.must(client.IgnoreAlreadyExists(w.Create(w.ctx, cluster.TopologyCRD())))
			w.topology, did = true, true
		}
	}
	var nodes corev1.NodeList
	w.must(w.List(w.ctx, &nodes))
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if cloud && n.Spec.ProviderID == "" {
			n.Spec.ProviderID = "vsphere://" + n.Name
			n.Spec.Taints = nil
			w.must(w.Update(w.ctx, n))
			did = true
		}
		if storage[n.Name] && !w.registered[n.Name] {
			csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Spec: storagev1.CSINodeSpec{
				Drivers: []storagev1.CSINodeDriver{{Name: drivers.CSIDriver, NodeID: n.Name}}}}
			w.must(client.IgnoreAlreadyExists(w.Create(w.ctx, csi)))
			w.registered[n.Name] = true
			did = true
		}
	}
	return did
}

// bringNode makes a Node what the model says of it.
func (w *world) bringNode(name string) {
	var o corev1.Node
	err := w.Get(w.ctx, types.NamespacedName{Name: name}, &o)
	n, wanted := w.nodes[name]
	if !wanted {
		w.must(client.IgnoreNotFound(w.Delete(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})))
		w.must(client.IgnoreNotFound(w.Delete(w.ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}})))
		delete(w.registered, name)
		return
	}
	if apierrors.IsNotFound(err) {
		labels := map[string]string{corev1.LabelOSStable: "linux", corev1.LabelHostname: name}
		o = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		o.Spec.Taints = []corev1.Taint{{Key: cluster.TaintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
		if n.controlPlane {
			o.Labels["node-role.kubernetes.io/control-plane"] = ""
		}
		err = w.Create(w.ctx, &o)
	}
	w.must(err)
	status := corev1.ConditionFalse
	if n.ready {
		status = corev1.ConditionTrue
	}
	o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	w.must(w.Status().Update(w.ctx, &o))
}

// collect ends the foreground deletions that the operator asked for, as the garbage collector does.
func (w *world) collect() bool {
	writes, n := w.wire.written(w.collected)
	w.collected = n
	did := false
	for _, x := range writes {
		if x.method == "DELETE" {
			did = w.endDeletion(x.path) || did
		}
	}
	return did
}

// endDeletion takes the finalizer of the foreground deletion away.
func (w *world) endDeletion(path string) bool {
	_, of, _ := strings.Cut(path, "/namespaces/")
	if ns, pod, ok := strings.Cut(of, "/pods/"); ok {
		delete(w.pods, types.NamespacedName{Namespace: ns, Name: pod})
		return true
	}
	raw, err := w.rest.Get().AbsPath(path).DoRaw(w.ctx)
	var o metav1.PartialObjectMetadata
	if err != nil || json.Unmarshal(raw, &o) != nil ||
		!controllerutil.RemoveFinalizer(&o, metav1.FinalizerDeleteDependents) {
		return false
	}
	patch := []byte(`{"metadata":{"finalizers":` + text(o.Finalizers) + `}}`)
	err = w.rest.Patch(types.MergePatchType).AbsPath(path).Body(patch).Do(w.ctx).Error()
	if !apierrors.IsNotFound(err) {
		w.must(err)
	}
	if parts := strings.Split(of, "/"); len(parts) == 3 {
		w.stopPods(parts[0], podPrefix(strings.TrimSuffix(parts[1], "s"), parts[2]), nil)
	}
	return true
}

// endNamespaces ends the storage driver's namespace while that is being deleted.
func (w *world) endNamespaces() bool {
	var ns corev1.Namespace
	err := w.Get(w.ctx, types.NamespacedName{Name: csiNamespace}, &ns)
	if err != nil || ns.DeletionTimestamp.IsZero() {
		return false
	}
	w.empty(csiNamespace)
	ns.Spec.Finalizers = nil
	w.must(client.IgnoreNotFound(w.SubResource("finalize").Update(w.ctx, &ns)))
	return true
}
