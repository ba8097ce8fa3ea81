package site

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// Drivers does the work of the drivers, whose images only stand in. Once the cloud provider's pods run, it logs in
// with their configuration, sets providerIDs by the VMs and removes taints. Once the storage driver's run, it logs in
// with theirs and registers that driver. So a wrong configuration never becomes healthy.
type Drivers struct {
	client client.Client
	cancel context.CancelFunc
	done   chan struct{}
	// registered are the pods through which the storage driver registered, by node.
	registered map[string]types.UID

	mu  sync.Mutex
	err error
}

const (
	csiDriver    = "csi.vsphere.vmware.com"
	csiNamespace = "vmware-system-csi"
)

// StartDrivers simulates the drivers on a cluster until Stop.
func StartDrivers(cfg *rest.Config) (*Drivers, error) {
	c, err := client.New(cfg, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Drivers{client: c, cancel: cancel, done: make(chan struct{}), registered: map[string]types.UID{}}
	go d.run(ctx)
	return d, nil
}

// Stop ends the simulation.
func (d *Drivers) Stop() {
	d.cancel()
	<-d.done
}

// Err returns the last error, for the message of a test that waited in vain.
func (d *Drivers) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *Drivers) run(ctx context.Context) {
	defer close(d.done)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := errors.Join(d.cloudProvider(ctx), d.storageDriver(ctx))
		d.mu.Lock()
		defer d.mu.Unlock()
		d.err = err
	}, 200*time.Millisecond)
}

func uninitialized(t corev1.Taint) bool { return t.Key == cluster.TaintUninitialized }

// cloudProvider initialises the nodes that wait for it.
func (d *Drivers) cloudProvider(ctx context.Context) error {
	running, err := d.running(ctx, "kube-system", client.MatchingLabels{"name": "vsphere-cloud-controller-manager"})
	if err != nil || len(running) == 0 {
		return err
	}
	var nodes corev1.NodeList
	if err := d.client.List(ctx, &nodes); err != nil {
		return err
	}
	waiting := slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return !slices.ContainsFunc(n.Spec.Taints, uninitialized) })
	if len(waiting) == 0 {
		return nil
	}
	logins, err := d.cpiLogins(ctx)
	if err != nil {
		return fmt.Errorf("cloud provider: %w", err)
	}
	for _, n := range waiting {
		if err := d.initialise(ctx, n, logins); err != nil {
			return fmt.Errorf("cloud provider: node %s: %w", n.Name, err)
		}
	}
	return nil
}

// initialise sets a node's providerID by the VM with its UUID.
func (d *Drivers) initialise(ctx context.Context, n corev1.Node, logins []login) error {
	uuid := strings.ToLower(n.Status.NodeInfo.SystemUUID)
	for _, l := range logins {
		found, err := l.hasVM(ctx, uuid)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		n.Spec.ProviderID = "vsphere://" + uuid
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, uninitialized)
		if err := d.client.Update(ctx, &n); !apierrors.IsConflict(err) { // changed meanwhile: the next round updates it
			return err
		}
		return nil
	}
	return fmt.Errorf("no VM with UUID %q", uuid)
}

// storageDriver registers the driver on the nodes where its pods run, again for each new pod.
func (d *Drivers) storageDriver(ctx context.Context) error {
	controllers, err := d.running(ctx, csiNamespace, client.MatchingLabels{"app": "vsphere-csi-controller"})
	if err != nil || len(controllers) == 0 {
		return err
	}
	// Its syncer creates a CRD when it runs.
	if err := client.IgnoreAlreadyExists(d.client.Create(ctx, cluster.TopologyCRD())); err != nil {
		return fmt.Errorf("storage driver: %w", err)
	}
	plugins, err := d.running(ctx, csiNamespace, client.MatchingLabels{"app": "vsphere-csi-node"})
	if err != nil {
		return err
	}
	for node, pod := range plugins {
		if d.registered[node] == pod {
			continue
		}
		if err := d.register(ctx, node); err != nil {
			return fmt.Errorf("storage driver: node %s: %w", node, err)
		}
		d.registered[node] = pod
	}
	return nil
}

// register logs in with the driver's configuration, as happens for a node's plug-in, and writes the node's CSINode.
func (d *Drivers) register(ctx context.Context, name string) error {
	logins, categories, err := d.csiConfig(ctx)
	if err != nil {
		return err
	}
	for _, l := range logins {
		if _, err := l.hasVM(ctx, "none"); err != nil {
			return err
		}
	}
	var node corev1.Node
	if err := d.client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return err
	}
	driver := storagev1.CSINodeDriver{Name: csiDriver, NodeID: strings.ToLower(node.Status.NodeInfo.SystemUUID)}
	for _, c := range categories {
		driver.TopologyKeys = append(driver.TopologyKeys, "topology.csi.vmware.com/"+c)
	}
	of := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	// A driver's entry is immutable, so a kubelet removes it and adds another one.
	for _, change := range []func(){
		func() {
			of.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}}
			isOurs := func(x storagev1.CSINodeDriver) bool { return x.Name == csiDriver }
			of.Spec.Drivers = slices.DeleteFunc(of.Spec.Drivers, isOurs)
		},
		func() { of.Spec.Drivers = append(of.Spec.Drivers, driver) },
	} {
		_, err := controllerutil.CreateOrUpdate(ctx, d.client, of, func() error { change(); return nil })
		if err != nil {
			return err
		}
	}
	return nil
}

// running returns the nodes on which a pod with the labels is ready, with its UID.
func (d *Drivers) running(ctx context.Context, namespace string, labels client.MatchingLabels) (map[string]types.UID, error) {
	var pods corev1.PodList
	if err := d.client.List(ctx, &pods, client.InNamespace(namespace), labels); err != nil {
		return nil, err
	}
	nodes := map[string]types.UID{}
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil {
			continue
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				nodes[p.Spec.NodeName] = p.UID
			}
		}
	}
	return nodes, nil
}
