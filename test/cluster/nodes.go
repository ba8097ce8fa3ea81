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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// TaintUninitialized is the taint that the kubelet gives a node that waits for a cloud provider.
const TaintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// Node is a node that KWOK simulates: it is Ready, and every pod on it is Running and Ready at once.
type Node struct {
	Name         string
	ControlPlane bool
	// Initialized nodes lack the taint that waits for a cloud provider.
	Initialized bool
	// SystemUUID is the BIOS UUID of its VM, as the machine's firmware reports it.
	SystemUUID string
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
	if _, err := client.CoreV1().Nodes().Create(ctx, n.object(), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register node %s: %w", n.Name, err)
	}
	return c.AwaitReady(ctx, n.Name)
}

// AwaitReady waits until a node is Ready.
func (c *Cluster) AwaitReady(ctx context.Context, name string) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Status.Conditions, func(cond corev1.NodeCondition) bool {
			return cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue
		}), nil //nolint:nilerr // polled until the timeout
	})
	if err != nil {
		return fmt.Errorf("node %s does not become ready: %w", name, err)
	}
	return nil
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
