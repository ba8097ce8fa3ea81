package vdoconfig

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

const openshift = "openshift"

// generatedID is where the storage driver stores the cluster id that it generated.
var generatedID = v1alpha1.KeyReference{ConfigMap: render.ClusterIDConfigMap, Key: "clusterID"}

func (p *pass) fault(d matrix.Driver, err error) { p.faults = joined(p.faults, d, err) }

// gateAll blocks new installations and upgrades.
func (p *pass) gateAll(err error) { p.facts.gated = fault.Join(p.facts.gated, err) }

// gateBundle does so on account of the bundle.
func (p *pass) gateBundle(err error) {
	p.gateAll(err)
	p.bundleGated = true
}

// at records a forbidden read as the driver's fault, and returns all other errors.
func (p *pass) at(d matrix.Driver, err error) error {
	if fault.ReasonOf(err) != fault.Forbidden {
		return err
	}
	p.fault(d, err)
	return nil
}

func joined(faults map[matrix.Driver]error, d matrix.Driver, err error) map[matrix.Driver]error {
	if faults == nil {
		faults = map[matrix.Driver]error{}
	}
	faults[d] = fault.Join(faults[d], err)
	return faults
}

func joinAll[K comparable](each map[K]error, err error) error {
	return fault.Distinct(fault.Join(append(slices.Collect(maps.Values(each)), err)...))
}

// collectInstalled reads the inventory, and finds drivers that must stay though they are no longer requested. The
// storage driver leaves only under the rules of a VDOConfig's deletion. They keep their last requested settings.
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

// needed returns which of the going drivers must stay, and why: volumes, unless spec.onDelete says otherwise, or
// snapshots of other storage drivers. Their deletion needs the snapshot-controller.
func (p *pass) needed(ctx context.Context, going []matrix.Driver) (map[matrix.Driver]string, error) {
	all := map[matrix.Driver]string{}
	on := p.onDelete()
	if on == v1alpha1.DeleteOrphan {
		return all, nil
	}
	if slices.Contains(going, matrix.SnapshotController) {
		n, err := p.Cluster.OthersSnapshots(ctx)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			all[matrix.SnapshotController] = fmt.Sprintf(
				"%d VolumeSnapshotContents of other storage drivers (counted up to %d) need it", n, cluster.MaxVolumes)
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

// collect reads all facts of a decision. It fails only if the API server does; faults of the site are facts.
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
	ofOpenShift, err := p.Cluster.Serves(schema.GroupKind{Group: "config.openshift.io", Kind: "ClusterVersion"})
	switch sp := p.spec.StorageProvider; {
	case err != nil:
		return err
	case ofOpenShift:
		p.site.Distribution = openshift
	case sp != nil:
		p.site.Distribution = sp.ClusterDistribution
	}
	if _, p.site.SnapshotsServed = p.others(); p.site.SnapshotsServed {
		delete(p.retained, matrix.SnapshotController) // theirs serves the volumes too
	}
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

// installed reads the drivers' versions from their workloads. The newest one counts, so that a started rollout ends. A
// driver without workloads has the version in the inventory: it is repaired.
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

func (p *pass) collectCluster(ctx context.Context) error {
	c := &p.cluster
	c.Distribution, c.Nodes = p.site.Distribution, p.observed.Nodes
	system := inventory.ID{Key: inventory.Key{Kind: "Namespace", Name: metav1.NamespaceSystem}, Version: "v1"}
	live, refused, err := p.Cluster.Read(ctx, []inventory.ID{system})
	if err := cmp.Or(err, p.at(matrix.CSI, refused[system.Key])); err != nil {
		return err
	}
	if ns := live[system.Key]; ns != nil {
		c.UID = string(ns.GetUID())
	}
	ids, err := p.Cluster.Data(ctx, render.CSINamespace, generatedID)
	if err := p.at(matrix.CSI, err); err != nil {
		return err
	}
	c.GeneratedClusterID = string(ids.Values[generatedID.Key])
	conf, err := p.Cluster.Data(ctx, render.CSINamespace, v1alpha1.KeyReference{Secret: render.CSISecret})
	if err := p.at(matrix.CSI, err); err != nil {
		return err
	}
	c.ConfiguredClusterID = render.ConfiguredClusterID(conf.Values[render.CSIConfigKey])
	if known := p.facts.inventory.Memory().ClusterID; known != "" {
		c.ConfiguredClusterID = known // the Secret may be lost or changed, and with it all volumes
	}
	if err := p.identify(ctx); err != nil {
		return err
	}
	if err := p.collectExisting(ctx, conf.Values); err != nil {
		return err
	}
	if p.hash != nil {
		return nil
	}
	p.hash, p.newHash = make([]byte, 32), true // written before anything else
	_, err = rand.Read(p.hash)
	return err
}

// collectCertificate provides the webhook's certificate: the one that keepCertificate checked. Before the webhook is
// registered, it is the one in its Secret or a new one, which the plan applies.
func (p *pass) collectCertificate(ctx context.Context) error {
	remembered := p.remembered()
	if p.facts.certificate != nil || (!wantsWebhook(&p.spec) && !wantsWebhook(&remembered)) {
		return nil
	}
	data, err := p.Cluster.Data(ctx, render.CSINamespace, v1alpha1.KeyReference{Secret: render.WebhookSecret})
	if err != nil {
		return p.at(matrix.CSI, err)
	}
	p.facts.certificate, _, p.certificateErr = webhookcert.Ensure(data.Values, nil, p.now)
	return nil
}

func wantsWebhook(spec *v1alpha1.VDOConfigSpec) bool {
	return spec.StorageProvider != nil && spec.StorageProvider.Webhook
}

// foreignClusterID returns the storage driver's cluster id if the records belong to another cluster and
// spec.storageProvider.clusterID does not confirm the id, else "". An id that the other cluster had set does not.
func (s *facts) foreignClusterID() string {
	id := cmp.Or(s.cluster.GeneratedClusterID, s.cluster.ConfiguredClusterID)
	of, here := s.inventory.Memory().ClusterUID, s.cluster.UID
	if of == "" || here == "" || of == here || isID(s.config.Spec.StorageProvider, id) && !s.wasSet(id) {
		return ""
	}
	return id
}

// strayClusterID returns the cluster id that the storage driver generated if its volumes are registered under another
// one and spec.storageProvider.clusterID does not confirm it, else "".
func (s *facts) strayClusterID() string {
	id, known := s.cluster.GeneratedClusterID, s.inventory.Memory().ClusterID
	if known == "" || id == known || isID(s.config.Spec.StorageProvider, id) {
		return ""
	}
	return id
}

// wasSet reports whether the recorded settings, which may be of another cluster, had the cluster id.
func (s *facts) wasSet(id string) bool { return isID(s.inventory.Memory().StorageProvider, id) }

func isID(sp *v1alpha1.StorageProvider, id string) bool { return sp != nil && sp.ClusterID == id }

// identify gates the storage driver if its cluster id belongs to another cluster, differs from that of the volumes, or
// is unknown while volumes exist. Two clusters with one id overwrite each other's volumes in CNS.
func (p *pass) identify(ctx context.Context) error {
	c, sp, memory := &p.cluster, p.spec.StorageProvider, p.facts.inventory.Memory()
	conflict := func(why error, hint string) {
		p.fault(matrix.CSI, &fault.Error{
			Reason: fault.Conflict, Op: "use", Subject: "the cluster id of " + drivers.CSIDriver, Err: why, Hint: hint})
	}
	known := c.GeneratedClusterID != "" || c.ConfiguredClusterID != "" || p.runs(matrix.CSI)
	_, unread := p.faults[matrix.CSI]
	switch foreign, stray := p.foreignClusterID(), p.strayClusterID(); {
	case sp == nil:
		return nil
	case foreign != "":
		record := p.name.Namespace + "/" + inventory.VDOConfigs.ConfigMap(p.name.Name)
		confirm := fmt.Sprintf("set spec.storageProvider.clusterID: %q", foreign)
		if p.wasSet(foreign) {
			confirm = "delete ConfigMap " + record
		}
		conflict(fmt.Errorf("%q is the id of another cluster: its Namespace kube-system has UID %s, this one's has UID %s",
			foreign, memory.ClusterUID, c.UID),
			fmt.Sprintf("where this cluster replaces the other one, %s; where both run, set spec.storageProvider.clusterID: %q "+
				"and delete what was restored: Secret %[3]s/%[4]s, ConfigMaps %[3]s/%[5]s and %[6]s",
				confirm, c.UID, render.CSINamespace, render.CSISecret, render.ClusterIDConfigMap, record))
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
		Err: fmt.Errorf("there are %d PersistentVolumes and %d VolumeAttachments (counted up to %d), "+
			"and nothing says under which cluster id they were made", volumes, attachments, cluster.MaxVolumes),
		Hint: fmt.Sprintf("restore Secret %[1]s/%[2]s or ConfigMap %[1]s/%[3]s, or write the id in spec.storageProvider.clusterID; "+
			"vCenter shows it as the cluster name of a container volume. If another cluster still has it, write a new one",
			render.CSINamespace, render.CSISecret, render.ClusterIDConfigMap),
	})
	return nil
}

// facts are the results of collect. Nothing changes them later, except that a pass observes the drivers again after its
// changes.
type facts struct {
	request
	installation
	bundled
	findings
	site       matrix.Facts // the matrix's input
	kubernetes kubernetes
	observed   *assess.Observed // nil if unreadable
	cluster    render.Cluster
	vcenters   map[string]vcenter
	sets       mirrorSets
	checks     checks
}

// request is the input of a pass.
type request struct {
	config *v1alpha1.VDOConfig // as read; never changed
	// spec is the VDOConfig's. A storage provider that must stay though it is no longer requested, and providers that a
	// check keeps, are as last requested.
	spec v1alpha1.VDOConfigSpec
	// retained are drivers that are no longer requested but still needed, and why.
	retained map[matrix.Driver]string
	frozen   string // why the pass only repairs, apart from its findings
	program  string // that makes the passes
	now      time.Time
}

// installation is the operator's record of what it installed.
type installation struct {
	inventory inventory.Inventory
	hash      []byte // the key of hashes
	newHash   bool   // created by this pass
	// certificate is the webhook's, stored or new; nil if no webhook is requested or registered.
	certificate    *webhookcert.Certificate
	certificateErr error
}

// bundled is the source of the drivers.
type bundled struct {
	// bundle is the accepted one, or else the one last installed from. If it is nil, unresolved or waiting says why.
	bundle     *opened
	unresolved error
	follows    string // the name of the DriverBundle, "" without one
	login      login
}

// findings are faults and open questions.
type findings struct {
	// faults are why the facts about a driver are incomplete: that driver alone stays unchanged.
	faults map[matrix.Driver]error
	// gated is why no driver may change: an unverified or unreadable bundle, a login that the mirror refused. Gates of
	// vCenters are [decided.groupGates].
	gated error
	// bundleGated is set if the bundle is the cause: unverified, stale or unreadable. It then replaces no driver, even
	// of an equal release: its images may differ.
	bundleGated bool
	// starts is why no upgrade may start, while started ones go on and are judged: an expired bundle, an unreadable
	// policy.
	starts  error
	waiting string // what the pass waits for, without a fault
	notes   []string
}

type opened struct {
	source   *v1alpha1.DriverBundle
	contents *bundle.Contents
	matrix   *matrix.Document
	// policy is the state of the trust policies at the check of the signature, "" for a bundle that only repairs use.
	policy string
	// verified is set if the signature satisfies that policy.
	verified bool
}

// reference returns REPOSITORY@DIGEST.
func (o *opened) reference() string { return o.source.Status.Repository + "@" + o.source.Status.Digest }

// vcenter is a vCenter that a driver uses.
type vcenter struct {
	render.VCenter
	read     credentials.Credentials // the present content of the Secret
	verified bool                    // vCenter accepted read; otherwise only version, gated and waiting are valid
	version  *matrix.VCenter         // nil if unknown
	where    string                  // its UUID, address and requested datacenters
	another  bool                    // another vCenter answers, which was not accepted
	replaced bool                    // it is not that of the drivers' last configuration, by its UUID
	gated    error                   // why no driver may be installed or configured with it
	waiting  string
}

// runs reports whether a driver has installed pods, or their removal has not ended: CRDs and namespaces stay in the
// inventory longer.
func (s *facts) runs(d matrix.Driver) bool { return hasPods(s.inventory, d) }

func hasPods(inv inventory.Inventory, d matrix.Driver) bool {
	return slices.ContainsFunc(inv.Entries(), func(e inventory.Entry) bool { return e.Driver == d && e.Release != "" && isWorkload(e.Key) })
}

func (s *facts) notRequested() []matrix.Driver {
	requested := s.requested()
	return slices.DeleteFunc(s.inventory.Drivers(), func(d matrix.Driver) bool { return slices.Contains(requested, d) })
}

func (s *facts) requested() []matrix.Driver {
	rules, _, _ := policies(s.config.Spec) //nolint:errcheck // resolve reports faults of pins
	if s.site.SnapshotsServed {
		rules[matrix.SnapshotController] = matrix.Disabled
	}
	return requestedBy(rules)
}

// remembered returns the spec with the providers and settings that drivers were last rendered with.
func (s *facts) remembered() v1alpha1.VDOConfigSpec {
	spec, was := s.spec, s.inventory.Memory()
	spec.CloudProvider, spec.StorageProvider = was.CloudProvider, was.StorageProvider
	spec.Drivers, spec.Patches = was.Drivers, was.Patches
	return spec
}

// others splits the foreign workloads: a snapshot-controller of any version serves as well as the operator's, another
// driver is a conflict.
func (s *facts) others() (conflicts []assess.Workload, served bool) {
	all := s.observed.Foreign()
	serves := func(w assess.Workload) bool { return w.Driver == matrix.SnapshotController }
	return slices.DeleteFunc(slices.Clone(all), serves), slices.ContainsFunc(all, serves)
}

// secrets returns the secret values that the output of drivers may contain: passwords of accounts and the mirror's
// login. They are those of the request and of the live configuration: running drivers may know no others.
func (s *facts) secrets(live plan.Live) []string {
	var all []string
	for _, key := range configured {
		all = append(all, render.Passwords(secretData(live[key]))...)
	}
	for _, key := range copies {
		all = append(all, login{data: secretData(live[key])[corev1.DockerConfigJsonKey]}.secrets()...)
	}
	for _, vc := range s.vcenters {
		all = append(all, vc.read.Password)
	}
	found := map[string][]byte{"cloud": s.cluster.ExistingCloudConfig, "storage": s.cluster.ExistingStorageConfig} // by other installers
	return slices.Concat(all, render.Passwords(found), s.login.secrets())
}

// configured are the Secrets with the drivers' configuration; see also copies.
var configured = []inventory.Key{
	{Kind: "Secret", Namespace: render.CPINamespace, Name: render.CPISecret}, {Kind: "Secret", Namespace: render.CSINamespace, Name: render.CSISecret},
}
