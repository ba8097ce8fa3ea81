package vdoctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

// namespaces are the operator's and those of drivers.
func (x *collection) namespaces() []string {
	return []string{x.ns, drivers.CSINamespace, drivers.SystemNamespace}
}

// secrets writes which Secrets there are, with the names of their keys, and has their values
// hidden everywhere. It tells whether all values are known.
func (x *collection) secrets(ctx context.Context) bool {
	known := true
	for _, ns := range x.namespaces() {
		var list corev1.SecretList
		if err := pages.Each(ctx, x.client, &list, func() {
			for i := range list.Items {
				x.secret(&list.Items[i])
			}
		}, client.InNamespace(ns)); err != nil {
			known = false
			x.missed("Secrets of "+ns, err)
		}
	}
	return known
}

// notSecret are keys of Secrets whose values help to find a fault.
var notSecret = []string{corev1.BasicAuthUsernameKey, v1alpha1.DefaultCAKey, corev1.TLSCertKey}

func (x *collection) secret(s *corev1.Secret) {
	keys := map[string]string{}
	for k, v := range s.Data {
		keys[k] = fmt.Sprintf("%d bytes", len(v))
		if !slices.Contains(notSecret, k) && !strings.HasSuffix(k, ".username") {
			x.hide.add(v)
		}
	}
	if s.Namespace != drivers.SystemNamespace {
		x.putYAML("resources/"+s.Namespace+"/Secret/"+s.Name+".yaml", map[string]any{"name": s.Name, "namespace": s.Namespace, "type": s.Type, "created": s.CreationTimestamp, "keys": keys})
	}
}

// collected is a kind of which objects are written.
type collected struct {
	apiVersion, kind string
	namespaced       bool
	only             func(*unstructured.Unstructured) bool // nil: all
}

// kindsToCollect are read whole in the operator's and the storage driver's namespaces; of
// kube-system only what is the drivers'.
func kindsToCollect() []collected {
	group := v1alpha1.GroupVersion.String()
	ours := func(u *unstructured.Unstructured) bool {
		return strings.Contains(u.GetName(), "vsphere") || strings.Contains(u.GetName(), "vdo") || strings.HasSuffix(u.GetName(), "vmware.com") || strings.HasSuffix(u.GetName(), ".snapshot.storage.k8s.io")
	}
	volume := func(u *unstructured.Unstructured) bool {
		driver, _, _ := unstructured.NestedString(u.Object, "spec", "csi", "driver")
		attacher, _, _ := unstructured.NestedString(u.Object, "spec", "attacher")
		return driver == drivers.CSIDriver || attacher == drivers.CSIDriver
	}
	return []collected{
		{group, "VDOConfig", true, nil}, {group, "VsphereCloudConfig", true, nil}, {group, "DriverBundle", true, nil}, {group, "CompatibilityConfig", true, nil},
		{"apps/v1", "Deployment", true, nil}, {"apps/v1", "DaemonSet", true, nil}, {"apps/v1", "ReplicaSet", true, nil},
		{"v1", "Pod", true, nil}, {"v1", "Service", true, nil}, {"v1", "ServiceAccount", true, nil}, {"v1", "ConfigMap", true, nil}, {"v1", "Event", true, nil},
		{"networking.k8s.io/v1", "NetworkPolicy", true, nil}, {"rbac.authorization.k8s.io/v1", "Role", true, nil}, {"coordination.k8s.io/v1", "Lease", true, nil},
		{"v1", "Node", false, nil}, {"v1", "Namespace", false, nil}, {"storage.k8s.io/v1", "CSINode", false, nil}, {"storage.k8s.io/v1", "CSIDriver", false, nil},
		{"storage.k8s.io/v1", "StorageClass", false, nil}, {"storage.k8s.io/v1", "VolumeAttachment", false, volume}, {"v1", "PersistentVolume", false, volume},
		{"rbac.authorization.k8s.io/v1", "ClusterRole", false, ours}, {"rbac.authorization.k8s.io/v1", "ClusterRoleBinding", false, ours},
		{"admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", false, ours}, {crdVersion, crdKind, false, ours},
	}
}

func (x *collection) resources(ctx context.Context) {
	for _, k := range kindsToCollect() {
		if !k.namespaced {
			x.kind(ctx, k, "")
			continue
		}
		for _, ns := range x.namespaces() {
			if ns == drivers.SystemNamespace && !slices.Contains([]string{"Deployment", "DaemonSet", "Pod", "ConfigMap", "Event"}, k.kind) {
				continue
			}
			x.kind(ctx, k, ns)
		}
	}
}

// kind writes the objects of a kind. A kind that the cluster does not know is left out.
func (x *collection) kind(ctx context.Context, k collected, ns string) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.FromAPIVersionAndKind(k.apiVersion, k.kind+"List"))
	dir := "resources/" + ns + "/" + k.kind + "/"
	if ns == "" {
		dir = "resources/cluster/" + k.kind + "/"
	}
	err := pages.Each(ctx, x.client, list, func() {
		for i := range list.Items {
			if u := &list.Items[i]; k.takes(u) {
				x.hide.withoutSecrets(u)
				x.putYAML(dir+u.GetName()+".yaml", u.Object)
			}
		}
	}, client.InNamespace(ns))
	if err != nil && !isGone(err) {
		x.missed(strings.TrimSpace(manyOf(k.kind)+" "+ns), err)
	}
}

// manyOf is the plural of a kind.
func manyOf(kind string) string {
	switch {
	case strings.HasSuffix(kind, "s"):
		return kind + "es"
	case strings.HasSuffix(kind, "y"):
		return strings.TrimSuffix(kind, "y") + "ies"
	}
	return kind + "s"
}

// takes tells whether an object of the kind is written.
func (k collected) takes(u *unstructured.Unstructured) bool {
	if k.only != nil {
		return k.only(u)
	}
	return u.GetNamespace() != drivers.SystemNamespace || ofDrivers(u)
}

// ofDrivers tells what of kube-system is a driver's, or an event about one.
func ofDrivers(u *unstructured.Unstructured) bool {
	about, _, _ := unstructured.NestedString(u.Object, "involvedObject", "name")
	for _, name := range append(driverNames(), "vsphere-cloud-config", "antrea-config", "snapshot-controller") {
		if strings.HasPrefix(u.GetName(), name) || about != "" && strings.HasPrefix(about, name) {
			return true
		}
	}
	return false
}

// driverNames are those of the drivers' workloads, with which those of their pods begin.
func driverNames() []string {
	var out []string
	for _, p := range drivers.Places() {
		if !slices.Contains(out, p.Name) {
			out = append(out, p.Name)
		}
	}
	return out
}

// maxLog bounds one log, in bytes.
const maxLog = 8 << 20

var errSecretsUnread = errors.New("left out: the Secrets whose values have to be taken out of them cannot be read")

// podLogs writes the logs of the operator's and the drivers' pods.
func (x *collection) podLogs(ctx context.Context, known bool) {
	if !known {
		x.miss("logs", errSecretsUnread)
		return
	}
	for _, ns := range x.namespaces() {
		var pods corev1.PodList
		if err := x.client.List(ctx, &pods, client.InNamespace(ns)); err != nil {
			x.missed("pods of "+ns, err)
			continue
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			mine := ns != drivers.SystemNamespace || slices.ContainsFunc(driverNames(), func(n string) bool { return strings.HasPrefix(p.Name, n) })
			if mine && p.Spec.NodeName != "" {
				x.logsOf(ctx, p)
			}
		}
	}
}

func (x *collection) logsOf(ctx context.Context, p *corev1.Pod) {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		restarted := slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool { return s.Name == c.Name && s.RestartCount > 0 })
		for _, previous := range []bool{false, true} {
			if previous && !restarted {
				continue
			}
			name := "logs/" + p.Namespace + "/" + p.Name + "/" + c.Name
			if previous {
				name += ".previous"
			}
			data, err := x.log(ctx, p, corev1.PodLogOptions{Container: c.Name, Previous: previous, TailLines: &x.tail, Timestamps: true})
			switch {
			case err != nil && !previous && !hasBegun(p, c.Name):
				x.miss(name, errors.New("the container has not begun, and has no log"))
				continue
			case err != nil:
				x.missed(name, err)
				continue
			}
			x.put(name+".log", data)
		}
	}
}

// hasBegun tells whether a container has run, so that there is a log.
func hasBegun(p *corev1.Pod, container string) bool {
	return slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.Name == container && (s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil)
	})
}

func (x *collection) log(ctx context.Context, p *corev1.Pod, o corev1.PodLogOptions) ([]byte, error) {
	r, err := x.logs.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &o).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(r, maxLog+1))
	if whole := wholeLines(data, maxLog); len(whole) < len(data) {
		x.miss("the end of a log of "+p.Namespace+"/"+p.Name+", "+o.Container, fmt.Errorf("it is longer than %d bytes", maxLog))
		data = whole
	}
	return data, err
}

// wholeLines are the lines that end within a size: a value that is cut is not known again.
func wholeLines(data []byte, size int) []byte {
	if len(data) <= size {
		return data
	}
	return data[:bytes.LastIndexByte(data[:size], '\n')+1]
}
