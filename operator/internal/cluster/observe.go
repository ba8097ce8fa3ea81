package cluster

import (
	"cmp"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/tracing"
)

// Observe reads the state of drivers and nodes. It reads workloads only in the drivers' places, and only their pods.
// A read that is forbidden becomes a fault of its driver.
func (c *Cluster) Observe(ctx context.Context) (o assess.Observed, err error) {
	ctx, end := tracing.Span(ctx, "observe")
	defer func() { end(err) }()
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	group.Go(func() (err error) {
		o.Nodes, err = all[*corev1.Node](gctx, c, selection{kind: nodes}, nodes.plural)
		return err
	})
	group.Go(func() (err error) {
		o.CSINodes, err = all[*storagev1.CSINode](gctx, c, selection{kind: csiNodes}, csiNodes.plural)
		return err
	})
	group.Go(func() error { return c.workloads(gctx, &o) })
	group.Go(func() error { return c.csiDriver(gctx, &o) })
	group.Go(func() error { return c.topologies(gctx, &o) })
	group.Go(func() (err error) {
		o.SnapshotCRDs, err = c.Serves(snapshots)
		return err
	})
	if err := group.Wait(); err != nil {
		return assess.Observed{}, err
	}
	return o, c.pods(ctx, &o)
}

// ObserveListed observes without the View: it lists everything.
func (c *Cluster) ObserveListed(ctx context.Context) (o assess.Observed, err error) {
	ctx, end := tracing.Span(ctx, "observe past what is watched")
	defer func() { end(err) }()
	past := &Cluster{Client: c.Client, Reader: c.Reader, View: c.View, listed: true, Log: c.Log}
	return past.Observe(ctx)
}

var snapshots = schema.GroupKind{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotContent"}

// Serves reports whether the API server serves a kind.
func (c *Cluster) Serves(kind schema.GroupKind) (bool, error) {
	_, err := c.Client.RESTMapper().RESTMapping(kind)
	return err == nil, listFault("kind "+kind.String(), err)
}

// listFault classifies an error of a list. A kind that the cluster lacks has no objects.
func listFault(what string, err error) error {
	if err == nil || meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return classify("list", what, err)
}

func (c *Cluster) workloads(ctx context.Context, o *assess.Observed) error {
	places := drivers.Places
	found, refused, err := sideBySide(ctx, places, c.workload)
	if err != nil {
		return err
	}
	for i, p := range places {
		switch w := found[i].(type) {
		case *appsv1.DaemonSet:
			o.DaemonSets = append(o.DaemonSets, *w)
		case *appsv1.Deployment:
			o.Deployments = append(o.Deployments, *w)
		}
		if refused[i] != nil && !p.Foreign {
			o.AddUnread(p.Driver, refused[i])
		}
	}
	return nil
}

func (c *Cluster) workload(ctx context.Context, p drivers.Place) (client.Object, error) {
	var o client.Object = &appsv1.Deployment{}
	if p.Kind == "DaemonSet" {
		o = &appsv1.DaemonSet{}
	}
	err := c.Reader.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, o)
	if c.absent(ctx, p.Namespace, err) {
		return nil, nil
	}
	if err != nil {
		return nil, classify("read", p.String(), err)
	}
	o.SetManagedFields(nil)
	return o, nil
}

func (c *Cluster) csiDriver(ctx context.Context, o *assess.Observed) error {
	var d storagev1.CSIDriver
	err := c.Reader.Get(ctx, types.NamespacedName{Name: drivers.CSIDriver}, &d)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return classify("read", "CSIDriver "+drivers.CSIDriver, err)
	}
	o.CSIDriver = &d
	return nil
}

// topologies reads the storage driver's errors about the topology of nodes.
func (c *Cluster) topologies(ctx context.Context, o *assess.Observed) error {
	if served, err := c.Serves(topologyKind.GroupKind()); !served {
		return err
	}
	found, err := all[*unstructured.Unstructured](ctx, c, selection{kind: topologies}, topologies.plural)
	for _, item := range found {
		state, _, _ := unstructured.NestedString(item.Object, "status", "status")
		message, _, _ := unstructured.NestedString(item.Object, "status", "errorMessage")
		if state != topologyError {
			continue
		}
		if o.NodeTopologies == nil {
			o.NodeTopologies = map[string]string{}
		}
		o.NodeTopologies[item.GetName()] = cmp.Or(message, "the driver gives no reason")
	}
	return err
}

// pods reads the pods of workloads that are ours or may be adopted, and the last words of crashing containers. For
// incomplete rollouts it reads the events that say why pods are not created.
func (c *Cluster) pods(ctx context.Context, o *assess.Observed) error {
	requested := map[string]bool{}
	var fallen []silent
	for _, w := range o.All() {
		selector, selects := w.Selector()
		if w.Foreign || !selects {
			continue
		}
		found, err := all[*corev1.Pod](ctx, c, selection{pods, w.Namespace, selector.String()}, "pods of "+w.String())
		o.Pods = append(o.Pods, found...)
		fallen = append(fallen, silentContainers(w, found)...)
		if err == nil && !o.RolledOut(w) && !requested[w.Namespace] {
			requested[w.Namespace] = true
			err = c.events(ctx, o, w.Namespace)
		}
		if fault.ReasonOf(err) == fault.Forbidden {
			o.AddFault(w.Driver, err)
			continue
		}
		if err != nil {
			return err
		}
	}
	c.View.prune()
	c.lastWords(ctx, o, fallen)
	return nil
}

func (c *Cluster) events(ctx context.Context, o *assess.Observed, namespace string) error {
	err := pages.Each(ctx, c.Reader, &corev1.EventList{}, func(e *corev1.Event) { o.Events = append(o.Events, *e) },
		client.InNamespace(namespace), client.MatchingFields{"reason": "FailedCreate"})
	return listFault("events in "+namespace, err)
}

// MaxVolumes bounds the counts of Volumes: if it returns this many, more may exist.
const MaxVolumes = 500

// Volumes counts the storage driver's PersistentVolumes, including those migrated to it, and its VolumeAttachments.
// A removal that waits for them counts repeatedly, so each count ends at [MaxVolumes].
func (c *Cluster) Volumes(ctx context.Context) (volumes, attachments int, err error) {
	all := &corev1.PersistentVolumeList{}
	volumes, err = count(ctx, c, "PersistentVolumes", all, func(v *corev1.PersistentVolume) bool {
		return v.Spec.CSI != nil && v.Spec.CSI.Driver == drivers.CSIDriver || v.Spec.VsphereVolume != nil
	})
	if err != nil {
		return 0, 0, err
	}
	list := &storagev1.VolumeAttachmentList{}
	attachments, err = count(ctx, c, "VolumeAttachments", list, func(a *storagev1.VolumeAttachment) bool {
		return a.Spec.Attacher == drivers.CSIDriver
	})
	return volumes, attachments, err
}

// count counts the objects of a list that match, up to [MaxVolumes].
func count[T client.Object](
	ctx context.Context, c *Cluster, what string, list client.ObjectList, counts func(T) bool,
) (n int, err error) {
	err = pages.Until(ctx, c.Reader, list, func(o T) bool {
		if counts(o) {
			n++
		}
		return n >= MaxVolumes
	})
	return min(n, MaxVolumes), listFault(what, err)
}

// OthersSnapshots counts the VolumeSnapshotContents of other storage drivers, up to [MaxVolumes].
func (c *Cluster) OthersSnapshots(ctx context.Context) (n int, err error) {
	list := pages.Empty(snapshots.WithVersion("v1"))
	return count(ctx, c, "VolumeSnapshotContents", list, func(u *unstructured.Unstructured) bool {
		of, _, _ := unstructured.NestedString(u.Object, "spec", "driver") //nolint:errcheck // it is a text
		return of != drivers.CSIDriver
	})
}

const (
	maxLogs    = 8  // containers whose logs are read per reconcile, one each
	logLines   = 20 // per container
	maxLog     = 64 << 10
	logTimeout = 5 * time.Second // for all together
)

// LogReader reads the end of the log of a container's last run.
type LogReader func(ctx context.Context, namespace, pod, container string) (string, error)

// Logs returns a LogReader that uses the API server, which asks the kubelet.
func Logs(cfg *rest.Config, h *http.Client) (LogReader, error) {
	c, err := kubernetes.NewForConfigAndClient(cfg, h)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, namespace, pod, container string) (string, error) {
		lines := int64(logLines)
		stream, err := c.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container, Previous: true, TailLines: &lines}).Stream(ctx)
		if err != nil {
			return "", err
		}
		defer stream.Close() //nolint:errcheck // it was read
		data, err := io.ReadAll(io.LimitReader(stream, maxLog))
		return string(data), err
	}, nil
}

// silent is a crashing container without a termination message.
type silent struct {
	workload  assess.Workload
	pod       string
	container string
}

// silentContainers returns a workload's silent containers, each once, with the first pod by name, as in findings.
func silentContainers(w assess.Workload, pods []*corev1.Pod) []silent {
	found := map[string]silent{}
	for i := range pods {
		st := &pods[i].Status
		for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
			t := c.LastTerminationState.Terminated
			if c.State.Waiting == nil || c.State.Waiting.Reason != "CrashLoopBackOff" || t == nil || t.Message != "" {
				continue
			}
			if was, exists := found[c.Name]; !exists || pods[i].Name < was.pod {
				found[c.Name] = silent{workload: w, pod: pods[i].Name, container: c.Name}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b silent) int { return cmp.Compare(a.container, b.container) })
}

// lastWords adds the logs of crashing containers to o, as far as they are readable. They are optional detail, so
// errors are ignored.
func (c *Cluster) lastWords(ctx context.Context, o *assess.Observed, all []silent) {
	if c.Log == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	all = all[:min(len(all), maxLogs)]
	logs, _, _ := sideBySide(ctx, all, func(ctx context.Context, s silent) (string, error) { //nolint:errcheck // there is none
		log, err := c.Log(ctx, s.workload.Namespace, s.pod, s.container)
		if err != nil {
			return "", nil //nolint:nilerr // a partial log is no use
		}
		return log, nil
	})
	for i, s := range all {
		o.AddLastWords(s.workload, s.container, logs[i])
	}
}

// MirrorRules returns the mirror rules of OpenShift's nodes, of all served kinds.
func (c *Cluster) MirrorRules(ctx context.Context) ([]preflight.MirrorRule, error) {
	var all []preflight.MirrorRule
	for _, k := range mirrorset.Kinds() {
		list := pages.Empty(schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind})
		err := pages.Each(ctx, c.Reader, list, func(o *unstructured.Unstructured) {
			set := o.GetKind() + " " + o.GetName()
			for _, e := range mirrorset.Read(o.Object, k) {
				all = append(all, preflight.MirrorRule{Set: set, Entry: e, Tags: k.Tags})
			}
		})
		if err := listFault(k.Kind+"s", err); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// MachineConfigPools returns the pools of OpenShift's nodes, none if the kind is not served.
func (c *Cluster) MachineConfigPools(ctx context.Context) ([]decide.Pool, error) {
	kind := schema.GroupVersion{Group: "machineconfiguration.openshift.io", Version: "v1"}.WithKind("MachineConfigPool")
	var all []decide.Pool
	err := listFault("MachineConfigPools", pages.Each(ctx, c.Reader, pages.Empty(kind), func(o *unstructured.Unstructured) {
		all = append(all, poolOf(o))
	}))
	if fault.ReasonOf(err) == fault.Forbidden {
		f := classify("list", "MachineConfigPools", err)
		f.Hint = "apply the permissions of this release: `vdo-bundle install-manifests BUNDLE --mirror-set | kubectl apply -f -`; " +
			"or add MachineConfigPools to spec.upgradePolicy.ignoreInterlocks"
		return nil, f
	}
	return all, err
}

func poolOf(o *unstructured.Unstructured) decide.Pool {
	p := decide.Pool{Name: o.GetName()}
	p.Paused, _, _ = unstructured.NestedBool(o.Object, "spec", "paused")
	p.Target, _, _ = unstructured.NestedString(o.Object, "spec", "configuration", "name")
	p.Has, _, _ = unstructured.NestedString(o.Object, "status", "configuration", "name")
	p.Updates, _, _ = unstructured.NestedInt64(o.Object, "status", "updatedMachineCount")
	p.Nodes, _, _ = unstructured.NestedInt64(o.Object, "status", "machineCount")
	observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["status"] != "True" {
			continue
		}
		switch condition["type"] {
		case "Updated":
			p.Updated = observed >= o.GetGeneration()
		case "Degraded", "RenderDegraded", "NodeDegraded":
			p.Degraded = true
		}
	}
	return p
}
