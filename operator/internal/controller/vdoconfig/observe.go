package vdoconfig

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
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
	// staying are drivers that are not asked for any more and serve volumes.
	staying []matrix.Driver

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
	// unproven are the vCenters that did not let in what is there now; in vcenters
	// something that is no configuration stands in their place.
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

// observeBundle finds the bundle and opens it. Where that cannot be done, what is
// installed is repaired from the bundle that was last installed from.
func (p *pass) observeBundle(ctx context.Context) error {
	b, err := p.findBundle(ctx)
	if err == nil {
		p.site.bundle = b
		err = p.openBundle(ctx, b)
	}
	if p.site.contents != nil {
		return p.observeLogin(ctx)
	}
	if !p.openLast(ctx) {
		return p.amiss(err)
	}
	p.hold(err)
	p.site.login, err = p.installedLogin(ctx)
	return err
}

// openBundle reads the contents of the accepted bundle, where there is one; else it
// is waited for.
func (p *pass) openBundle(ctx context.Context, b *v1alpha1.DriverBundle) error {
	if b.Status.Digest == "" {
		return p.notAccepted(b)
	}
	policy, err := p.Cluster.PolicyVersion(ctx, b)
	if err != nil {
		return err
	}
	p.verifiedBundle(b, policy)
	if fresh := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionFresh); fresh != nil && fresh.Status == metav1.ConditionFalse && b.Spec.AcceptOlder != b.Status.Digest {
		p.hold(&fault.Error{
			Reason: fault.Reason(fresh.Reason), Op: "install from", Subject: "DriverBundle " + b.Name, Err: errors.New(fresh.Message),
			Hint: "what is installed stays; push a newer bundle, or consent to this one by spec.acceptOlder of the DriverBundle",
		})
	}
	return p.readContents(ctx, b)
}

func (p *pass) readContents(ctx context.Context, b *v1alpha1.DriverBundle) error {
	contents, err := p.Store.Contents(ctx, b)
	if err != nil {
		return err
	}
	doc, err := p.matrices.parse("matrix of "+b.Status.Digest, contents.Matrix)
	if err != nil {
		return err
	}
	p.site.bundle, p.site.contents, p.site.matrix = b, contents, doc
	return nil
}

// openLast opens the bundle that was last installed from, while anything is installed. Its
// DriverBundle may have been deleted, or have accepted another one since: then it is
// read as its digest says, from memory, from a copy that is left or from the mirror.
func (p *pass) openLast(ctx context.Context) bool {
	reference := cmp.Or(p.config.Status.Bundle, p.site.inventory.Memory().Bundle)
	repository, digest, ok := strings.Cut(reference, "@")
	if b := p.site.bundle; !ok || p.site.inventory.Len() == 0 || (b != nil && b.Status.Digest == digest && b.Status.Repository == repository) {
		return false // it is the one that could not be opened
	}
	last := &v1alpha1.DriverBundle{}
	last.Namespace, last.Spec.Reference = p.name.Namespace, reference
	if ref := p.config.Spec.Bundle; ref != nil {
		last.Name = ref.Name
	}
	var all v1alpha1.DriverBundleList
	if err := p.Client.List(ctx, &all, client.InNamespace(p.name.Namespace)); err != nil {
		return false
	}
	for i := range all.Items {
		if st := &all.Items[i].Status; st.Digest == digest && st.Repository == repository {
			last = all.Items[i].DeepCopy()
		}
	}
	last.Status.Digest, last.Status.Repository = digest, repository
	return p.readContents(ctx, last) == nil
}

// verifiedBundle holds installations and upgrades where the accepted bundle's
// signature is not good under the trust policy of now, or was not held against it yet.
func (p *pass) verifiedBundle(b *v1alpha1.DriverBundle, policy string) {
	verified := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionVerified)
	switch {
	case verified == nil || verified.ObservedGeneration != b.Generation,
		verified.Status == metav1.ConditionTrue && b.Status.VerifiedPolicy != policy:
		p.outcome.waiting = "DriverBundle " + b.Name + " is being verified"
	case verified.Status != metav1.ConditionTrue:
		p.hold(&fault.Error{
			Reason: fault.Reason(verified.Reason), Op: "install from", Subject: "DriverBundle " + b.Name, Err: errors.New(verified.Message),
			Hint: "what is installed stays and is repaired; push a bundle that the trust policy accepts, or correct the policy",
		})
	}
}

// amiss notes why nothing can be chosen; the pass goes on to assess.
func (p *pass) amiss(err error) error {
	p.outcome.resolved = fault.Join(p.outcome.resolved, err)
	return nil
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

func (p *pass) fault(d matrix.Driver, err error) {
	if p.site.faults == nil {
		p.site.faults = map[matrix.Driver]error{}
	}
	p.site.faults[d] = fault.Join(p.site.faults[d], err)
}

// hold keeps new installations and upgrades back.
func (p *pass) hold(err error) { p.site.hold = fault.Join(p.site.hold, err) }

// findBundle returns the bundle named, or the only one there is.
func (p *pass) findBundle(ctx context.Context) (*v1alpha1.DriverBundle, error) {
	var all v1alpha1.DriverBundleList
	if err := p.Client.List(ctx, &all, client.InNamespace(p.name.Namespace)); err != nil {
		return nil, &fault.Error{Reason: fault.Unreachable, Op: "list", Subject: "DriverBundles", Err: err}
	}
	if ref := p.config.Spec.Bundle; ref != nil {
		for i := range all.Items {
			if all.Items[i].Name == ref.Name {
				return &all.Items[i], nil
			}
		}
		return nil, &fault.Error{
			Reason: fault.NotFound, Op: "find", Subject: "DriverBundle " + ref.Name, Err: fmt.Errorf("namespace %s has none of that name", p.name.Namespace),
			Hint: "correct spec.bundle.name, or create the DriverBundle",
		}
	}
	switch len(all.Items) {
	case 1:
		return &all.Items[0], nil
	case 0:
		return nil, &fault.Error{
			Reason: fault.NotFound, Op: "find", Subject: "DriverBundle", Err: fmt.Errorf("namespace %s has none", p.name.Namespace),
			Hint: "create a DriverBundle whose spec.reference is the bundle in the mirror",
		}
	}
	names := make([]string, 0, len(all.Items))
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	slices.Sort(names)
	return nil, &fault.Error{
		Reason: fault.InvalidInput, Op: "choose", Subject: "DriverBundle", Err: fmt.Errorf("there are %d: %v", len(names), names),
		Hint: "name one in spec.bundle.name",
	}
}

// notAccepted says why a bundle cannot be installed from; one that was not looked
// at yet is only waited for.
func (p *pass) notAccepted(b *v1alpha1.DriverBundle) error {
	ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		p.outcome.waiting = "DriverBundle " + b.Name + " is being verified"
		return nil
	}
	return &fault.Error{
		Reason: fault.Reason(ready.Reason), Op: "install from", Subject: "DriverBundle " + b.Name,
		Hint: "see to the DriverBundle first", Err: errors.New(ready.Message),
	}
}

// vCenterNames returns the VsphereCloudConfigs that the drivers of a spec use, each once.
func vCenterNames(spec *v1alpha1.VDOConfigSpec) []string {
	names := slices.Clone(render.CloudVCenters(spec.Cloud()))
	for _, n := range render.StorageVCenters(spec.StorageProvider) {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// observeVCenters reads every vCenter that is named, and all that is wrong with them.
// Those that only a driver uses which is not asked for any more hold nothing back.
func (p *pass) observeVCenters(ctx context.Context) error {
	p.site.vcenters, p.site.unproven, p.site.versions = map[string]render.VCenter{}, map[string]bool{}, nil
	named := vCenterNames(&p.config.Spec)
	for i, name := range vCenterNames(&p.spec) {
		hold, waiting, versions := p.site.hold, p.outcome.waiting, p.site.versions
		vc, ok, err := p.vcenter(ctx, name)
		if err != nil {
			return err
		}
		if !slices.Contains(named, name) {
			p.site.hold, p.outcome.waiting, p.site.versions = hold, waiting, versions
		}
		if !ok {
			vc, p.site.unproven[name] = standIn(i), true
		}
		p.site.vcenters[name] = vc
	}
	return nil
}

// vcenter reads a vCenter; it is good where what is there now was let in.
func (p *pass) vcenter(ctx context.Context, name string) (vc render.VCenter, ok bool, err error) {
	var vcc v1alpha1.VsphereCloudConfig
	err = p.Client.Get(ctx, types.NamespacedName{Namespace: p.name.Namespace, Name: name}, &vcc)
	if client.IgnoreNotFound(err) != nil {
		return vc, false, err
	}
	if err != nil {
		p.hold(&fault.Error{
			Reason: fault.NotFound, Op: "find", Subject: "VsphereCloudConfig " + name, Err: fmt.Errorf("namespace %s has none of that name", p.name.Namespace),
			Hint: "create it, or correct the name in the VDOConfig",
		})
		return vc, false, nil //nolint:nilerr // it is not there, which was noted
	}
	proven, ok := p.observeVCenter(ctx, &vcc)
	if !ok {
		return vc, false, nil
	}
	return vcenterOf(&vcc, proven), true, nil
}

// standIn is a vCenter that there is none of. It lets all else of a driver be
// rendered, and so repaired; the configuration made with it is never written.
func standIn(i int) render.VCenter {
	host := fmt.Sprintf("vcenter-%d.invalid", i)
	return render.VCenter{
		Server: host, Insecure: true, Datacenters: []string{"none"}, Credentials: render.Credentials{Username: "none@" + host, Password: "none"},
	}
}

// observeVCenter notes what the check of a vCenter said, and returns the credentials
// that it succeeded with, where those are the ones that are there now.
func (p *pass) observeVCenter(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig) (credentials.Proven, bool) {
	if v, err := matrix.ParseVSphere(vcc.Status.Version); err == nil {
		build, _ := strconv.ParseUint(vcc.Status.Build, 10, 64) //nolint:errcheck // 0 stands for a build that is not known
		p.site.versions = append(p.site.versions, matrix.VCenter{Name: vcc.Name, Version: v, Build: build})
	}
	read, err := p.Cluster.Credentials(ctx, vcc)
	if err != nil {
		p.hold(err)
		return credentials.Proven{}, false
	}
	proven, ok := read.Proven(vcc)
	ready := meta.FindStatusCondition(vcc.Status.Conditions, v1alpha1.ConditionReady)
	current := ready != nil && ready.ObservedGeneration == vcc.Generation
	switch {
	case current && ready.Status == metav1.ConditionFalse && vcc.Status.CredentialsVersion == read.Version:
		p.hold(&fault.Error{
			Reason: fault.Reason(ready.Reason), Op: "use", Subject: "VsphereCloudConfig " + vcc.Name, Err: errors.New(ready.Message),
			Hint: "see to the VsphereCloudConfig first",
		})
	case current && ready.Status == metav1.ConditionTrue && ok:
	case vcc.Spec.Suspend:
		p.hold(&fault.Error{
			Reason: fault.Refused, Op: "use", Subject: "VsphereCloudConfig " + vcc.Name, Err: errors.New("it is not checked, since its spec.suspend is set, and was changed since the last check"),
			Hint: "set its spec.suspend to false",
		})
	default:
		p.outcome.waiting = "VsphereCloudConfig " + vcc.Name + " is being checked"
	}
	return proven, ok
}

func vcenterOf(vcc *v1alpha1.VsphereCloudConfig, c credentials.Proven) render.VCenter {
	vc := render.VCenter{
		Server: vcc.Spec.VcIP, Port: vcc.Spec.Port, Insecure: vcc.Spec.AnyCertificate(), Datacenters: vcc.Spec.DatacenterNames(),
		Thumbprint: vcc.Spec.Thumbprint, CA: c.CA, Credentials: render.Credentials{Username: c.Username, Password: c.Password},
	}
	if len(vc.Thumbprint) > sha1Thumbprint && vcc.Status.Thumbprint != "" {
		vc.Thumbprint = vcc.Status.Thumbprint // drivers know the SHA-1 form only
	}
	return vc
}

// sha1Thumbprint is the length of a SHA-1 thumbprint as hex pairs with colons.
const sha1Thumbprint = 20*3 - 1

// vCentersOf returns the VsphereCloudConfigs that a driver uses.
func (p *pass) vCentersOf(d matrix.Driver) []string {
	switch d {
	case matrix.CPI:
		return render.CloudVCenters(p.spec.Cloud())
	case matrix.CSI:
		return render.StorageVCenters(p.spec.StorageProvider)
	}
	return nil
}

// unprovenFor tells whether a driver's configuration names a vCenter that did not let
// in what would be written, or cannot be made: then it stays as it is.
func (p *pass) unprovenFor(d matrix.Driver) bool {
	return p.site.malformed[d] != nil || slices.ContainsFunc(p.vCentersOf(d), func(n string) bool { return p.site.unproven[n] })
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
