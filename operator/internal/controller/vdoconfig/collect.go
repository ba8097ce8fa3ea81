package vdoconfig

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

const (
	clusterIDKey = "clusterID"
	openshift    = "openshift"
)

// clusterIDConfigMap is where the storage driver keeps the cluster id that it made.
var clusterIDConfigMap = types.NamespacedName{Namespace: render.CSINamespace, Name: render.ClusterIDConfigMap}

func (p *pass) fault(d matrix.Driver, err error) { p.faults = joined(p.faults, d, err) }

// gateAll keeps new installations and upgrades back.
func (p *pass) gateAll(err error) { p.facts.gated = fault.Join(p.facts.gated, err) }

// gateBundle does, for the sake of the bundle.
func (p *pass) gateBundle(err error) {
	p.gateAll(err)
	p.bundleGated = true
}

// at notes an error of reading a driver's place as that driver's fault, where it is
// about the place; else it is returned.
func (p *pass) at(d matrix.Driver, err error) error {
	if fault.ReasonOf(err) != fault.Forbidden {
		return err
	}
	p.fault(d, err)
	return nil
}

// joined adds a driver's fault to those that there are.
func joined(faults map[matrix.Driver]error, d matrix.Driver, err error) map[matrix.Driver]error {
	if faults == nil {
		faults = map[matrix.Driver]error{}
	}
	faults[d] = fault.Join(faults[d], err)
	return faults
}

// joinAll joins what is wrong with many, and what is wrong besides.
func joinAll[K comparable](each map[K]error, err error) error {
	return fault.Join(append(slices.Collect(maps.Values(each)), err)...)
}

// collectInstalled reads what was installed, and finds the drivers that have to stay though they
// are no longer requested: the storage driver goes only as the deletion of the
// VDOConfig would let it. Those are cared for as they were last requested.
func (p *pass) collectInstalled(ctx context.Context) error {
	var err error
	p.kept, err = p.load(ctx, p.config)
	p.inventory, p.facts.inventory, p.hash = p.kept.Inventory, p.kept.Inventory, p.kept.key
	if err != nil {
		return err
	}
	gone := slices.DeleteFunc(p.notRequested(), func(d matrix.Driver) bool { return !p.runs(d) })
	if p.retained, err = p.needed(ctx, gone); err != nil || len(p.retained) == 0 {
		return err
	}
	if p.spec.StorageProvider == nil {
		p.spec.StorageProvider = p.facts.inventory.Memory().StorageProvider
	}
	return nil
}

// needed are those of drivers that are to go that have to stay, and what needs them: volumes, unless spec.onDelete says
// otherwise, and snapshots of other storage drivers, which no one would delete without the snapshot-controller.
func (p *pass) needed(ctx context.Context, going []matrix.Driver) (map[matrix.Driver]string, error) {
	all := map[matrix.Driver]string{}
	on := p.config.Spec.OnDelete
	if on == v1alpha1.DeleteOrphan {
		return all, nil
	}
	if slices.Contains(going, matrix.SnapshotController) {
		n, err := p.Cluster.OthersSnapshots(ctx)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			all[matrix.SnapshotController] = strconv.Itoa(n) + " VolumeSnapshotContents of other storage drivers need it"
		}
	}
	if p.outcome.volumes == nil && on != v1alpha1.DeleteRemove && slices.Contains(going, matrix.CSI) {
		var err error
		if p.outcome.volumes, err = p.volumesInUse(ctx); err != nil {
			return nil, err
		}
	}
	for _, d := range []matrix.Driver{matrix.SnapshotController, matrix.CSI} {
		if p.outcome.volumes != nil && slices.Contains(going, d) {
			all[d] = "volumes use it"
		}
	}
	return all, nil
}

// collect reads everything that decisions depend on. It fails only where the API
// server does; what is wrong with the site is part of what is found.
func (p *pass) collect(ctx context.Context) error {
	if err := p.observe(ctx, p.Cluster.Observe); err != nil {
		return err
	}
	servers, err := p.Cluster.APIServers(ctx)
	if err != nil {
		return err
	}
	was := p.facts.inventory.Memory()
	if p.kubernetes, err = kubernetesFor(servers, was.Kubernetes, was.NewerSince, p.at0()); err != nil {
		return err
	}
	p.site.Kubernetes = p.kubernetes.version
	p.notes = append(p.notes, p.kubernetes.notes...)
	for d, why := range p.observed.Unread {
		p.fault(d, why)
	}
	p.site.Installed = installed(p.observed, p.facts.inventory)
	p.site.Distribution = p.distributionOf()
	_, p.starts = upgradePolicy(&p.config.Spec, false)
	read := []func(context.Context) error{
		p.collectBundle, p.collectOpenShift, p.collectVCenters, p.collectChecks, p.collectCluster, p.collectMirrors,
		p.collectCertificate,
	}
	for _, one := range read {
		if err := one(ctx); err != nil {
			return err
		}
	}
	return nil
}

// inOrder are the drivers in order of installation.
var inOrder = []matrix.Driver{matrix.CNI, matrix.CPI, matrix.SnapshotController, matrix.CSI}

// installed reads the drivers' versions from their workloads, of which the newest counts, so that a rollout that was
// begun is ended. A driver whose workloads are all gone is in the version that the inventory has: it is repaired.
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
	maps.Copy(recorded, all)
	return recorded
}

func (p *pass) distributionOf() string {
	if p.Cluster.Serves(schema.GroupKind{Group: "config.openshift.io", Kind: "ClusterVersion"}) {
		return openshift
	}
	if sp := p.spec.StorageProvider; sp != nil {
		return sp.ClusterDistribution
	}
	return ""
}

func (p *pass) collectCluster(ctx context.Context) error {
	c := &p.cluster
	c.Distribution = p.site.Distribution
	for _, n := range p.observed.Nodes {
		c.Nodes = append(c.Nodes, render.Node{Name: n.Name, Labels: n.Labels, Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable})
	}
	system := inventory.ID{Key: inventory.Key{Kind: "Namespace", Name: metav1.NamespaceSystem}, Version: "v1"}
	live, refused, err := p.Cluster.Read(ctx, []inventory.ID{system})
	if err := cmp.Or(err, p.at(matrix.CSI, refused[system.Key])); err != nil {
		return err
	}
	if ns := live[system.Key]; ns != nil {
		c.UID = string(ns.GetUID())
	}
	ids, err := p.Cluster.ConfigMap(ctx, clusterIDConfigMap)
	if err := p.at(matrix.CSI, err); err != nil {
		return err
	}
	c.GeneratedClusterID = ids[clusterIDKey]
	conf, err := p.Cluster.Secret(ctx, types.NamespacedName{Namespace: render.CSINamespace, Name: render.CSISecret})
	if err := p.at(matrix.CSI, err); err != nil {
		return err
	}
	c.ConfiguredClusterID = render.ConfiguredClusterID(conf[render.CSIConfigKey])
	if known := p.facts.inventory.Memory().ClusterID; known != "" {
		c.ConfiguredClusterID = known // the Secret may be lost or changed, and with it all volumes
	}
	if err := p.identify(ctx); err != nil {
		return err
	}
	if err := p.collectExisting(ctx, conf); err != nil {
		return err
	}
	if p.hash != nil {
		return nil
	}
	p.hash, p.newHash = make([]byte, 32), true // it is written before anything else is
	_, err = rand.Read(p.hash)
	return err
}

// collectCertificate has the webhook's certificate at hand: the one that was seen to, or,
// before the webhook is registered, one from its Secret or a new one, which is kept by being applied.
func (p *pass) collectCertificate(ctx context.Context) error {
	remembered := p.remembered()
	if p.facts.certificate != nil || (!wantsWebhook(&p.spec) && !wantsWebhook(&remembered)) {
		return nil
	}
	data, err := p.Cluster.Secret(ctx, types.NamespacedName{Namespace: render.CSINamespace, Name: render.WebhookSecret})
	if err != nil {
		return p.at(matrix.CSI, err)
	}
	p.facts.certificate, _, p.certificateErr = webhookcert.Ensure(data, nil, p.now, rand.Reader)
	return nil
}

func wantsWebhook(spec *v1alpha1.VDOConfigSpec) bool {
	return spec.StorageProvider != nil && spec.StorageProvider.Webhook
}

// foreignClusterID returns the storage driver's cluster id where the records are of another cluster and
// spec.storageProvider.clusterID does not confirm the id, else "".
func (s *facts) foreignClusterID() string {
	id := cmp.Or(s.cluster.GeneratedClusterID, s.cluster.ConfiguredClusterID)
	if of := s.inventory.Memory().ClusterUID; of == "" || s.cluster.UID == "" || of == s.cluster.UID || s.confirms(id) {
		return ""
	}
	return id
}

// strayClusterID returns the cluster id that the storage driver made though its volumes are known to be registered
// under another one, and spec.storageProvider.clusterID does not confirm it, else "".
func (s *facts) strayClusterID() string {
	id, known := s.cluster.GeneratedClusterID, s.inventory.Memory().ClusterID
	if known == "" || id == known || s.confirms(id) {
		return ""
	}
	return id
}

func (s *facts) confirms(id string) bool {
	sp := s.config.Spec.StorageProvider
	return sp != nil && sp.ClusterID == id
}

// identify refuses a cluster id that came with the records of another cluster, since two clusters with one id overwrite
// each other's volumes in CNS, and one that is not that of the volumes. It also refuses to install or adopt the
// storage driver while there are volumes of it and no one knows under which id.
func (p *pass) identify(ctx context.Context) error {
	c, sp, memory := &p.cluster, p.spec.StorageProvider, p.facts.inventory.Memory()
	conflict := func(why error, hint string) {
		p.fault(matrix.CSI, &fault.Error{
			Reason: fault.Conflict, Op: "use", Subject: "the cluster id of " + drivers.CSIDriver, Err: why, Hint: hint})
	}
	known := c.GeneratedClusterID != "" || c.ConfiguredClusterID != "" || p.facts.inventory.Has(matrix.CSI)
	_, unread := p.faults[matrix.CSI]
	switch foreign, stray := p.foreignClusterID(), p.strayClusterID(); {
	case sp == nil:
		return nil
	case foreign != "":
		conflict(fmt.Errorf("%q is the id of another cluster: its Namespace kube-system has UID %s, this one's has UID %s",
			foreign, memory.ClusterUID, c.UID),
			fmt.Sprintf("where this cluster replaces the other one, set spec.storageProvider.clusterID: %[1]q; "+
				"where both run, delete what was restored: Secret %[2]s/%[3]s, ConfigMaps %[2]s/%[4]s and %[5]s/%[6]s",
				foreign, render.CSINamespace, render.CSISecret, render.ClusterIDConfigMap,
				p.name.Namespace, inventory.VDOConfigs.ConfigMap(p.name.Name)))
		return nil
	case stray != "":
		conflict(fmt.Errorf("the driver has made %q, and its volumes are registered under %q", stray, memory.ClusterID),
			fmt.Sprintf("delete ConfigMap %s/%s, so that %q is configured again; only where no volume is under it, "+
				"set spec.storageProvider.clusterID: %q",
				render.CSINamespace, render.ClusterIDConfigMap, memory.ClusterID, stray))
		return nil
	case known || sp.ClusterID != "" || unread:
		return nil
	}
	volumes, attachments, err := p.Cluster.Volumes(ctx)
	if err != nil || volumes+attachments == 0 {
		return err
	}
	p.fault(matrix.CSI, &fault.Error{
		Reason: fault.NotFound, Op: "find", Subject: "the cluster id of " + drivers.CSIDriver,
		Err: fmt.Errorf("there are %d PersistentVolumes and %d VolumeAttachments, and nothing says under which cluster id they were made",
			volumes, attachments),
		Hint: fmt.Sprintf("restore Secret %[1]s/%[2]s or ConfigMap %[1]s/%[3]s, or write the id in spec.storageProvider.clusterID; "+
			"vCenter shows it as the cluster name of a container volume", render.CSINamespace, render.CSISecret, render.ClusterIDConfigMap),
	})
	return nil
}

// facts is what a pass found. collect fills it, and nothing changes it after, but that drivers are observed once more
// where the pass has changed something.
type facts struct {
	request
	installation
	bundled
	findings
	site       matrix.Facts // as the matrix is asked
	kubernetes kubernetes
	observed   *assess.Observed // nil where it could not be read
	cluster    render.Cluster
	vcenters   map[string]vcenter
	sets       mirrorSets
	checks     checks
}

// request is what the pass is asked for.
type request struct {
	config *v1alpha1.VDOConfig // as it was found; never changed
	// spec is the VDOConfig's, but for the storage provider of a driver that has to stay
	// though it is no longer requested, and for providers that a check keeps as they are:
	// those are as they were last requested.
	spec v1alpha1.VDOConfigSpec
	// retained are drivers that are no longer requested and are still needed, and by what.
	retained map[matrix.Driver]string
	frozen   string // why nothing but repairs is done, besides what is found
	program  string // that makes the passes, where that is not this one: "" for this one
	now      time.Time
}

// installation is what the operator keeps of what it installed.
type installation struct {
	inventory inventory.Inventory
	hash      []byte // the key of hashes
	newHash   bool   // it was made in this pass
	// certificate of the webhook, as it is kept, or a new one; nil where no webhook is
	// asked for or registered.
	certificate    *webhookcert.Certificate
	certificateErr error
}

// bundled is what drivers are installed from.
type bundled struct {
	// bundle is the accepted one, or where that cannot be opened the one that was last installed from. It is nil
	// where there is none; then unresolved or waiting says why.
	bundle     *opened
	unresolved error
	follows    string // the name of the DriverBundle, "" where there is none to follow
	login      login
}

// findings are what is wrong, or not known yet.
type findings struct {
	// faults are why what is known of a driver's place is not all there is: that driver
	// is left as it is, and no other.
	faults map[matrix.Driver]error
	// gated is why nothing new may be installed of any driver: a bundle that is not fresh, a
	// login that the mirror did not let in. What vCenters hold back is [decided.groupGates].
	gated error
	// bundleGated is set if the bundle is why: unverified, stale or unreadable. It then replaces no driver, even of an
	// equal release: its images may be others.
	bundleGated bool
	// starts is why no upgrade may start, though what was begun goes on and is judged: a bundle that is not fresh, a
	// policy that cannot be read.
	starts  error
	waiting string // what is not there yet, for which no one is at fault
	notes   []string
}

type opened struct {
	source   *v1alpha1.DriverBundle
	contents *bundle.Contents
	matrix   *matrix.Document
	// policy is the state of the trust policies that it was held against, "" for a bundle
	// that only what is installed is repaired from.
	policy string
	// verified is set where its signature was held against that and is good.
	verified bool
}

// reference is REPOSITORY@DIGEST.
func (o *opened) reference() string { return o.source.Status.Repository + "@" + o.source.Status.Digest }

// vcenter is one that a driver uses.
type vcenter struct {
	render.VCenter
	read     credentials.Credentials // what is there now
	verified bool                    // what is there now was let in; else only version, gated and waiting are good
	version  *matrix.VCenter         // nil where it is not known
	where    string                  // which one it is, its address and datacenters, as they are requested
	another  bool                    // another one answers, which was not accepted
	gated    error                   // why nothing new may be installed with it
	waiting  string
}

// runs tells whether a driver's pods were installed, and their removal has not ended:
// kinds and namespaces stay in the inventory longer.
func (s *facts) runs(d matrix.Driver) bool {
	return slices.ContainsFunc(s.inventory.Entries(), func(e inventory.Entry) bool { return e.Driver == d && e.Release != "" && isWorkload(e.Key) })
}

// notRequested are the drivers that are installed and not requested.
func (s *facts) notRequested() []matrix.Driver {
	requested := s.requested()
	return slices.DeleteFunc(s.inventory.Drivers(), func(d matrix.Driver) bool { return slices.Contains(requested, d) })
}

func (s *facts) requested() []matrix.Driver {
	rules, _, _ := policies(s.config.Spec) //nolint:errcheck // what is wrong with pins is reported by deciding
	return requestedBy(rules)
}

// remembered is the spec with the providers and settings of pods that drivers were last rendered from.
func (s *facts) remembered() v1alpha1.VDOConfigSpec {
	spec, was := s.spec, s.inventory.Memory()
	spec.CloudProvider, spec.StorageProvider = was.CloudProvider, was.StorageProvider
	spec.Drivers, spec.Patches = was.Drivers, was.Patches
	return spec
}

// verifiedVCenters are the vCenters of a spec that let in what is there now, and unproven the
// names of the others.
func (s *facts) verifiedVCenters(spec *v1alpha1.VDOConfigSpec) (verified map[string]render.VCenter, unverified []string) {
	verified = map[string]render.VCenter{}
	for _, name := range vCenterNames(spec) {
		if vc := s.vcenters[name]; vc.verified {
			verified[name] = vc.VCenter
		} else {
			unverified = append(unverified, name)
		}
	}
	return verified, unverified
}

// others splits the foreign workloads: one snapshot-controller of the version decided
// for serves as well as ours, any other is a conflict.
func (s *facts) others(d decision) (conflicts []plan.Other, served bool) {
	requested := d.version(matrix.SnapshotController)
	for _, w := range s.observed.Foreign() {
		if w.Driver == matrix.SnapshotController && (s.site.Distribution == openshift || w.Version == requested) {
			served = true
			continue
		}
		conflicts = append(conflicts, plan.Other{
			ID:     inventory.ID{Key: inventory.Key{Group: "apps", Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}, Version: "v1"},
			Driver: w.Driver, Version: w.Version, Helm: w.Helm,
		})
	}
	return conflicts, served
}

// secrets are the values that drivers' pods know and that may be in what they write: the accounts' passwords and the
// mirror's login, as they are requested and as the live configuration has them.
func (s *facts) secrets(live plan.Live) []string {
	all := configuredPasswords(live)
	for _, vc := range s.vcenters {
		all = append(all, vc.read.Password)
	}
	found := map[string][]byte{"cloud": s.cluster.ExistingCloudConfig, "storage": s.cluster.ExistingStorageConfig} // by whoever installed them
	return slices.Concat(all, render.Passwords(found), s.login.secrets())
}

// configured are the Secrets with the drivers' configuration; see also copies.
var configured = []inventory.Key{
	{Kind: "Secret", Namespace: render.CPINamespace, Name: render.CPISecret}, {Kind: "Secret", Namespace: render.CSINamespace, Name: render.CSISecret},
}

// configuredPasswords are those that drivers are configured with, and pull with: the ones that run may know no others.
func configuredPasswords(live plan.Live) []string {
	var all []string
	for _, key := range configured {
		all = append(all, render.Passwords(secretData(live[key]))...)
	}
	for _, key := range copies {
		all = append(all, login{data: secretData(live[key])[corev1.DockerConfigJsonKey]}.secrets()...)
	}
	return all
}
