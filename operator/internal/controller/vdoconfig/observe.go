package vdoconfig

import (
	"context"
	"crypto/rand"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

const (
	hashKey      = "key"
	clusterIDKey = "clusterID"
	openshift    = "openshift"
)

// hashSecrets hold the key of configuration hashes, both the same.
var hashSecrets = []string{"vdo-config-hash", "vdo-config-hash-copy"}

// site is what a pass found.
type site struct {
	// retained are drivers that are not asked for any more and serve volumes.
	retained []matrix.Driver

	kubernetes   kubernetes
	distribution string
	observed     assess.Observed
	looked       bool // observed is what is there
	inventory    inventory.Inventory
	installed    map[matrix.Driver]matrix.Version

	bundle   *v1alpha1.DriverBundle
	contents *bundle.Contents // nil where there are none; then fault or waiting says why
	matrix   *matrix.Document
	login    login

	vcenters map[string]render.VCenter
	versions []matrix.VCenter
	cluster  render.Cluster
	// certificate of the webhook, as it is kept; nil where no webhook is registered.
	certificate *webhookcert.Certificate
	hash        []byte
	newHash     bool
	// hashMissing are the Secrets that the key of hashes is not in.
	hashMissing []string

	// faults are why what is known of a driver's place is not all there is: that driver
	// is left as it is, and no other.
	faults map[matrix.Driver]error

	// malformed are drivers whose configuration cannot be made from what is said, and why.
	malformed map[matrix.Driver]error

	// hold is why nothing new may be installed: a bundle that is not fresh, vCenters
	// that were not verified.
	hold error
	// unproven are the vCenters that did not let in what is there now; they are not in vcenters.
	unproven map[string]bool
}

// observe reads everything that decisions depend on. It fails only where the API
// server does; what is wrong with the site is part of what is found.
func (p *pass) observe(ctx context.Context) error {
	s := &p.site
	var err error
	if s.observed, err = p.Cluster.Observe(ctx); err != nil {
		return err
	}
	s.looked = true
	servers, err := p.Cluster.APIServers(ctx)
	if err != nil {
		return err
	}
	if s.kubernetes, err = chosenFor(servers, s.inventory.Memory().Kubernetes); err != nil {
		return err
	}
	p.outcome.notes = append(p.outcome.notes, s.kubernetes.notes...)
	for d, why := range s.observed.Unread {
		p.fault(d, why)
	}
	s.installed = installed(&s.observed, s.inventory)
	s.distribution = p.distribution()
	if err := p.observeBundle(ctx); err != nil {
		return err
	}
	if err := p.observeVCenters(ctx); err != nil {
		return err
	}
	return p.observeCluster(ctx)
}

// inOrder are the drivers in order of installation.
var inOrder = []matrix.Driver{matrix.CNI, matrix.CPI, matrix.SnapshotController, matrix.CSI}

// installed reads the drivers' versions from their workloads. While one is rolled
// out the newest of its workloads counts, so that a roll-out that was begun is ended.
// A driver whose workloads are all gone is installed in the version that the inventory
// has of them: it is repaired.
func installed(o *assess.Observed, inv inventory.Inventory) map[matrix.Driver]matrix.Version {
	all := map[matrix.Driver]matrix.Version{}
	for _, d := range inOrder {
		for _, w := range o.Workloads(d) {
			if v, err := matrix.ParseVersion(w.Version); err == nil && all[d].LessThan(v) {
				all[d] = v
			}
		}
	}
	recorded := map[matrix.Driver]matrix.Version{}
	for _, e := range inv.Entries() {
		if id, err := matrix.ParseReleaseID(e.Release); err == nil && isWorkload(e.Key) && recorded[e.Driver].LessThan(id.Version) {
			recorded[e.Driver] = id.Version
		}
	}
	for d, v := range recorded {
		if _, there := all[d]; !there {
			all[d] = v
		}
	}
	return all
}

func (p *pass) distribution() string {
	if p.Cluster.Serves(schema.GroupKind{Group: "config.openshift.io", Kind: "ClusterVersion"}) {
		return openshift
	}
	if sp := p.spec.StorageProvider; sp != nil {
		return sp.ClusterDistribution
	}
	return ""
}

// observeCluster reads what rendering has to know of the cluster.
func (p *pass) observeCluster(ctx context.Context) error {
	c := &p.site.cluster
	c.Distribution = p.site.distribution
	for _, n := range p.site.observed.Nodes {
		c.Nodes = append(c.Nodes, render.Node{Name: n.Name, Labels: n.Labels, Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable})
	}
	system := inventory.ID{Key: inventory.Key{Kind: "Namespace", Name: metav1.NamespaceSystem}, Version: "v1"}
	live, _, err := p.Cluster.Read(ctx, []inventory.ID{system})
	if err != nil {
		return err
	}
	if ns := live[system.Key]; ns != nil {
		c.UID = string(ns.GetUID())
	}
	ids, err := p.Cluster.ConfigMap(ctx, types.NamespacedName{Namespace: render.CSINamespace, Name: render.ClusterIDConfigMap})
	if err := p.at(matrix.CSI, err); err != nil {
		return err
	}
	c.GeneratedClusterID = ids[clusterIDKey]
	conf, err := p.Cluster.Secret(ctx, types.NamespacedName{Namespace: render.CSINamespace, Name: render.CSISecret})
	if err := p.at(matrix.CSI, err); err != nil {
		return err
	}
	c.ConfiguredClusterID = render.ConfiguredClusterID(conf[render.CSIConfigKey])
	if known := p.site.inventory.Memory().ClusterID; known != "" {
		c.ConfiguredClusterID = known // the Secret may be lost or changed, and with it all volumes
	}
	return p.observeHash(ctx)
}

// hashKeyThere returns the key of configuration hashes, or nil, and the Secrets that it
// is not in.
func (p *pass) hashKeyThere(ctx context.Context) (key []byte, missing []string, err error) {
	for _, name := range hashSecrets {
		data, err := p.Cluster.Secret(ctx, types.NamespacedName{Namespace: p.name.Namespace, Name: name})
		if err != nil {
			return nil, nil, err
		}
		switch have := data[hashKey]; {
		case len(have) == 0:
			missing = append(missing, name)
		case key == nil:
			key = have
		}
	}
	return key, missing, nil
}

// observeHash reads the key of configuration hashes, which is kept twice since with
// another one all pods would roll, or makes one. What is missing is written before
// anything else is.
func (p *pass) observeHash(ctx context.Context) error {
	var err error
	if p.site.hash, p.site.hashMissing, err = p.hashKeyThere(ctx); err != nil || p.site.hash != nil {
		return err
	}
	p.site.hash, p.site.newHash = make([]byte, 32), true
	if _, err := rand.Read(p.site.hash); err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	return nil
}
