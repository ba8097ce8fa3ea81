// Package clusterstate reads from the API server what package preflight looks at of a
// cluster: nodes, where the storage driver is registered, its StorageClasses, the cluster id
// that it made for itself, and the cloud provider of kube-controller-manager.
//
//	state := clusterstate.Read(ctx, reader, config.Spec.ExcludedNodes)
//
// Lists are read page by page, and only the few fields that are judged are kept, so that
// thousands of nodes take little memory. [Fault] says why the API server did not do what it was asked,
// and [Until] waits for what it says.
package clusterstate

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// Fault tells the ways apart in which the API server refuses or is away.
func Fault(op string, err error) error {
	f := &fault.Error{Reason: fault.Internal, Op: op, Err: err}
	var netErr net.Error
	known, isFault := errors.AsType[*fault.Error](err)
	switch {
	case isFault: // of a file in the place of the cluster
		f.Reason, f.Hint = known.Reason, known.Hint
	case errors.Is(err, context.Canceled):
		f.Reason = fault.Interrupted
	case apierrors.IsUnauthorized(err), strings.Contains(err.Error(), "getting credentials: "), // by a plugin
		strings.HasSuffix(err.Error(), "failed to get server groups: unknown"): // an anonymous request
		f.Reason, f.Hint = fault.Unauthorized, "log in to the cluster again: the kubeconfig's credentials are not accepted"
	case fault.AdmissionHint(err) != "":
		f.Reason, f.Hint = fault.Refused, fault.AdmissionHint(err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		f.Reason, f.Hint = fault.Conflict, "wait until the namespace is gone, then run `vdoctl deploy BUNDLE`"
	case apierrors.IsForbidden(err):
		f.Reason, f.Hint = fault.Forbidden, hintOfRight(MissingRight(err))
	case meta.IsNoMatchError(err) && strings.Contains(err.Error(), admissionv1.GroupName):
		f.Reason, f.Hint = fault.Incompatible, "leave out --rbac-policy"
		f.Err = errors.New("this cluster does not serve it: it needs Kubernetes 1.30")
	case meta.IsNoMatchError(err):
		f.Reason, f.Hint = fault.NotFound, "install the operator first: `vdoctl deploy BUNDLE`"
		f.Err = errors.New("the operator's resources are not known to this cluster")
	case apierrors.IsNotFound(err):
		f.Reason = fault.NotFound
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		f.Reason, f.Hint = fault.Conflict, "another program wrote it meanwhile: run the same command again"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		f.Reason, f.Hint = fault.InvalidInput, "correct what the API server refuses"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		f.Reason, f.Hint = fault.CertificateInvalid, "correct certificate-authority-data or the server's name in the kubeconfig, or the clock; renew an expired certificate"
	case errors.As(err, &netErr), strings.Contains(err.Error(), "connection refused"),
		apierrors.IsServiceUnavailable(err), apierrors.IsTooManyRequests(err), apierrors.IsInternalError(err),
		apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		f.Reason, f.Hint = fault.Unreachable, "see that the API server runs and the kubeconfig names it: `kubectl cluster-info`"
	}
	return f
}

// Until looks every so often until nothing is to be waited for, a refusal says that waiting does not help, or
// the limit (default: 15 minutes) is over. An API server that is away for a while is waited for too.
func Until(ctx context.Context, limit, every time.Duration, op, hint string, look func() (string, error)) error {
	limit, every = cmp.Or(limit, 15*time.Minute), cmp.Or(every, 2*time.Second)
	for end := time.Now().Add(limit); ; {
		why, err := look()
		var known *fault.Error
		switch {
		case err == nil && why == "":
			return nil
		case errors.As(err, &known):
			if known.Reason != fault.Internal && !known.Reason.Passing() {
				return err
			}
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			return Fault(op, err)
		}
		if time.Now().After(end) {
			err = fmt.Errorf("not within %s: %w", limit, cmp.Or(err, errors.New(why)))
			return &fault.Error{Reason: fault.Incomplete, Op: op, Err: err, Hint: hint}
		}
		select {
		case <-ctx.Done():
			return &fault.Error{Reason: fault.Interrupted, Op: op, Err: ctx.Err(), Hint: "run the same command again"}
		case <-time.After(every):
		}
	}
}

// NewPods returns how many available pods of a Deployment are surely of its present template, and how many it wants. An
// old pod stays until a new one is available.
func NewPods(d *appsv1.Deployment) (up, want int32) {
	if st := d.Status; st.ObservedGeneration >= d.Generation {
		up = max(0, st.AvailableReplicas-st.Replicas+st.UpdatedReplicas)
	}
	return up, ptr.Deref(d.Spec.Replicas, 1)
}

// forbidden is how the API server says which right is missing.
var forbidden = regexp.MustCompile(`cannot (\w+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?`)

// MissingRight says which right the account lacks, such as "get deployments.apps in namespace
// kube-system", or "" where the error is about something else.
func MissingRight(err error) string {
	m := forbidden.FindStringSubmatch(err.Error())
	switch {
	case m == nil:
		return ""
	case m[4] == "":
		m[4] = "in the whole cluster"
	default:
		m[4] = "in namespace " + m[4]
	}
	return m[1] + " " + strings.TrimSuffix(m[2]+"."+m[3], ".") + " " + m[4]
}

func hintOfRight(right string) string {
	if right == "" {
		return "use an account that may do this: `kubectl auth can-i --list` shows what yours may"
	}
	return "use an account with the permission to " + right + ", or have a role with it bound to yours"
}

// Read reads what the checks look at; that it could not be read is in the result. Nodes
// with one of the labels of excluded are not on vSphere, and left out.
func Read(ctx context.Context, c client.Reader, excluded map[string]string) preflight.Cluster {
	state, err := read(ctx, c, excluded)
	if err != nil {
		return preflight.Cluster{Err: Fault("read the cluster", err)}
	}
	return state
}

func read(ctx context.Context, c client.Reader, excluded map[string]string) (preflight.Cluster, error) {
	var out preflight.Cluster
	registered, err := csiNodes(ctx, c)
	if err != nil {
		return out, err
	}
	out.CloudProviders = map[string]string{}
	if err := pages.Each(ctx, c, &corev1.NodeList{}, func(n *corev1.Node) {
		out.ControlPlane = out.ControlPlane || drivers.IsControlPlane(n.Labels)
		if !drivers.Excluded(n.Labels, excluded) {
			out.Nodes = append(out.Nodes, node(n, registered))
			if p, ok := cloudProvider(nodeArguments(n)); ok {
				out.CloudProviders["k3s or RKE2 on node "+n.Name] = p
			}
		}
	}, client.Limit(pages.PerNode)); err != nil {
		return out, err
	}
	if err := readCloudProviders(ctx, c, out.CloudProviders); err != nil {
		return out, err
	}
	return out, readStorage(ctx, c, &out)
}

// readCloudProviders reads --cloud-provider of the kube-controller-managers that are pods. It reads none if the account
// may not list pods.
func readCloudProviders(ctx context.Context, c client.Reader, out map[string]string) error {
	const name = "kube-controller-manager"
	for _, label := range []string{"component", "k8s-app"} {
		err := pages.Each(ctx, c, &corev1.PodList{}, func(p *corev1.Pod) {
			out[p.Name] = ""
			for _, container := range p.Spec.Containers {
				if value, ok := cloudProvider(slices.Concat(container.Command, container.Args)); ok {
					out[p.Name] = value
				}
			}
		}, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{label: name})
		if apierrors.IsForbidden(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cloudProvider returns the last cloud-provider among arguments, and whether there is one.
func cloudProvider(words []string) (last string, found bool) {
	words = append(words, "")
	for n, word := range words[:len(words)-1] {
		word = strings.TrimPrefix(word, "--")
		value, ok := strings.CutPrefix(word, "cloud-provider=")
		if word == "cloud-provider" {
			value, ok = words[n+1], true
		}
		if ok {
			last, found = value, true
		}
	}
	return last, found
}

// nodeArguments returns the arguments of k3s or RKE2 on a node: k3s pkg/nodeconfig/nodeconfig.go, getNodeArgs. They
// have those of the kubelet, and in k3s of kube-controller-manager. Other kubelets show none.
func nodeArguments(n *corev1.Node) (out []string) {
	for _, name := range []string{"k3s.io/node-args", "rke2.io/node-args"} {
		if json.Unmarshal([]byte(n.Annotations[name]), &out) == nil {
			return out
		}
	}
	return nil
}

// readStorage reads what there is of the storage driver: its classes, the cluster id that
// it made for itself, and whether it is registered.
func readStorage(ctx context.Context, c client.Reader, out *preflight.Cluster) error {
	if err := pages.Each(ctx, c, &storagev1.StorageClassList{}, func(s *storagev1.StorageClass) {
		if s.Provisioner == drivers.CSIDriver {
			out.StorageClasses = append(out.StorageClasses, preflight.StorageClass{
				Name: s.Name, Policy: parameter(s, "storagepolicyname"), DatastoreURL: parameter(s, "datastoreurl"),
				FSType: parameter(s, "csi.storage.k8s.io/fstype"), Allowed: s.AllowedTopologies})
		}
	}); err != nil {
		return err
	}
	var kept corev1.ConfigMap
	err := c.Get(ctx, client.ObjectKey{Namespace: drivers.CSINamespace, Name: "vsphere-csi-cluster-id"}, &kept)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	out.KeptClusterID = kept.Data["clusterID"]
	err = c.Get(ctx, client.ObjectKey{Name: drivers.CSIDriver}, &storagev1.CSIDriver{})
	out.StorageInstalled = err == nil
	return client.IgnoreNotFound(err)
}

// csiNodes are the topology keys of the storage driver, by the nodes that it is registered on.
func csiNodes(ctx context.Context, c client.Reader) (map[string][]string, error) {
	out := map[string][]string{}
	return out, pages.Each(ctx, c, &storagev1.CSINodeList{}, func(n *storagev1.CSINode) {
		for _, d := range n.Spec.Drivers {
			if d.Name == drivers.CSIDriver {
				out[n.Name] = append([]string{}, d.TopologyKeys...)
			}
		}
	})
}

// parameter of a StorageClass, whose names may be written in any case.
func parameter(s *storagev1.StorageClass, name string) string {
	for k, v := range s.Parameters {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

// FixAnnotation marks a node whose VM `vdoctl vms fix` changes.
const FixAnnotation = "vdo.vmware.com/vm-fix"

// machineAnnotations name the Machine of a node: Cluster API's, and OpenShift's Machine API.
var machineAnnotations = []string{"cluster.x-k8s.io/machine", "machine.openshift.io/machine"}

func node(n *corev1.Node, registered map[string][]string) preflight.Node {
	keys, known := registered[n.Name]
	out := preflight.Node{
		Name: n.Name, UUID: n.Status.NodeInfo.SystemUUID, ProviderID: n.Spec.ProviderID, Kubelet: n.Status.NodeInfo.KubeletVersion,
		Registered: known, TopologyKeys: keys, Zones: map[string]string{},
		ControlPlane: drivers.IsControlPlane(n.Labels) || drivers.IsEtcd(n.Labels),
	}
	_, out.Begun = n.Annotations[FixAnnotation]
	for _, key := range machineAnnotations {
		out.Machine = cmp.Or(n.Annotations[key], out.Machine)
	}
	for k, v := range n.Labels {
		if preflight.IsZoneLabel(k) {
			out.Zones[k] = v
		}
	}
	for _, t := range n.Spec.Taints {
		out.Uninitialized = out.Uninitialized || t.Key == "node.cloudprovider.kubernetes.io/uninitialized"
	}
	return out
}
