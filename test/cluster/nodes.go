package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
)

// TaintUninitialized is the taint that the kubelet gives a node that waits for a cloud provider.
const TaintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// LabelAway marks nodes that KWOK leaves unchanged: a Ready that is set to False stays so.
const LabelAway = "vdo.test/away"

// Node is a node that KWOK simulates: it is Ready, and every pod on it is Running and Ready at once.
type Node struct {
	Name         string
	ControlPlane bool
	// Initialized nodes lack the taint that waits for a cloud provider.
	Initialized bool
	// SystemUUID is the BIOS UUID of its VM, as the machine's firmware reports it.
	SystemUUID string
}

// DefaultNodes returns one control-plane node and two workers that wait for a cloud provider.
func DefaultNodes() []Node {
	return []Node{{Name: "cp-1", ControlPlane: true}, {Name: "worker-1"}, {Name: "worker-2"}}
}

func (n Node) object() *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
			corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{
			SystemUUID: n.SystemUUID, OperatingSystem: "linux", Architecture: "amd64",
		}},
	}
	if n.ControlPlane {
		node.Labels["node-role.kubernetes.io/control-plane"] = ""
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "node-role.kubernetes.io/control-plane",
			Effect: corev1.TaintEffectNoSchedule})
	}
	if !n.Initialized {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: TaintUninitialized, Value: "true",
			Effect: corev1.TaintEffectNoSchedule})
	}
	return node
}

// registerNodes registers the nodes and waits until they are Ready.
func (c *Cluster) registerNodes(ctx context.Context) error {
	for _, n := range c.opts.Nodes {
		if err := c.AddNode(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// AddNode registers a node and waits until it is Ready.
func (c *Cluster) AddNode(ctx context.Context, n Node) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	nodes := client.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, n.object(), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register node %s: %w", n.Name, err)
	}
	if c.opts.NoNetwork {
		return withoutNetwork(ctx, nodes, n.Name)
	}
	return c.AwaitReady(ctx, n.Name)
}

// AwaitReady waits until a node is Ready.
func (c *Cluster) AwaitReady(ctx context.Context, name string) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	return await(ctx, client.CoreV1().Nodes(), name, func(node *corev1.Node) bool {
		return slices.ContainsFunc(node.Status.Conditions, func(cond corev1.NodeCondition) bool {
			return cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue
		})
	})
}

// await waits until a condition holds for a node.
func await(ctx context.Context, nodes typedcorev1.NodeInterface, name string, is func(*corev1.Node) bool) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		node, err := nodes.Get(ctx, name, metav1.GetOptions{})
		return err == nil && is(node), nil //nolint:nilerr // polled until the timeout
	})
	if err != nil {
		return fmt.Errorf("node %s does not become ready: %w", name, err)
	}
	return nil
}

// withoutNetwork sets a node's status as its kubelet does before a network plug-in runs, and waits until that keeps
// pods away.
func withoutNetwork(ctx context.Context, nodes typedcorev1.NodeInterface, name string) error {
	enough := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110")}
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Status.Capacity, node.Status.Allocatable = enough, enough
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			Message: "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized",
		}}
		_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err
	}); err != nil {
		return err
	}
	return await(ctx, nodes, name, func(node *corev1.Node) bool {
		return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeNotReady && t.Effect == corev1.TaintEffectNoSchedule
		})
	})
}

// TopologyCRD returns the CRD that the storage driver's syncer creates when it starts.
func TopologyCRD() *apiextensionsv1.CustomResourceDefinition {
	return CRD("cns.vmware.com", "v1alpha1", "CSINodeTopology", "csinodetopologies")
}

// CRD returns a CRD of a cluster-scoped kind with any fields.
func CRD(group, version, kind, plural string) *apiextensionsv1.CustomResourceDefinition {
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}}},
		},
	}
}
