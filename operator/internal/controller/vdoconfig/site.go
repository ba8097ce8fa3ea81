package vdoconfig

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

// site is what a pass found. It is filled once, nothing changes it after, and all that decides is a
// function of it.
type site struct {
	config *v1alpha1.VDOConfig // as it was found; never changed
	// spec is the VDOConfig's, but for the storage provider of a driver that has to stay
	// though it is not asked for any more, and for providers that a check keeps as they are:
	// those are as they were last asked for.
	spec   v1alpha1.VDOConfigSpec
	frozen string // why nothing but repairs is done, besides what is found
	// ungated is set of a site as it would be if nothing gated anything.
	ungated bool
	// program that makes the passes, where that is not this one: "" for this one.
	program string
	now     time.Time

	inventory inventory.Inventory
	// retained are drivers that are not asked for any more and are still needed, and by what.
	retained map[matrix.Driver]string

	kubernetes   kubernetes
	distribution string
	observed     *assess.Observed // nil where it could not be read
	installed    map[matrix.Driver]matrix.Version

	// bundle is installed from: the accepted one, or where that cannot be opened the one
	// that was last installed from. It is nil where there is none; then unresolved or
	// waiting says why.
	bundle     *opened
	unresolved error
	follows    string // the name of the DriverBundle, "" where there is none to follow
	login      login

	vcenters map[string]vcenter
	// running are the passwords in the configuration that is on the cluster, and of the login that
	// pods have, which may be others than those of vcenters and of login.
	running  []string
	checks   checks
	leads    bool               // the operator leads OpenShift's nodes to the mirror
	sets     mirrorSets         // by which they are led, where it does
	mirrors  *preflight.Mirrors // of OpenShift's nodes, where pods name images as upstream does
	versions []matrix.VCenter   // of those that drivers are asked for with
	desired  decision           // what the accepted bundle has for the site, whatever gates it
	cluster  render.Cluster
	// certificate of the webhook, as it is kept, or a new one; nil where no webhook is
	// asked for or registered.
	certificate    *webhookcert.Certificate
	certificateErr error
	hash           []byte
	newHash        bool
	hashes         map[string]string // as [inventory.Memory] has them

	// faults are why what is known of a driver's place is not all there is: that driver
	// is left as it is, and no other.
	faults map[matrix.Driver]error
	// held is why nothing new may be installed of any driver: a bundle that is not fresh, a
	// login that the mirror did not let in. What vCenters hold back is [site.holds].
	held error
	// bundleHeld is set where the bundle is why: it was not verified, or is not fresh, or
	// the one to install from cannot be read. Then it does not replace what runs though its
	// releases are the same: their images may be others.
	bundleHeld bool
	// stale is the part of held that says that the bundle is not fresh: what was begun is ended.
	stale error
	// revisions are what was installed from before, and what is decided on the upgrade.
	revisions revisions
	// current are the drivers of the revision in force, or of the one that is gone back to.
	current map[matrix.Driver]current
	waiting string // what is not there yet, for which nobody is at fault
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
	read    credentials.Credentials // what is there now
	proven  bool                    // what is there now was let in; else only version, held and waiting are good
	version *matrix.VCenter         // nil where it is not known
	where   string                  // which one it is, its address and datacenters, as they are asked for
	another bool                    // another one answers, which was not accepted
	held    error                   // why nothing new may be installed with it
	waiting string
}

// runs tells whether a driver's pods were installed, and their removal has not ended:
// kinds and namespaces stay in the inventory longer.
func (s *site) runs(d matrix.Driver) bool {
	return slices.ContainsFunc(s.inventory.Entries(), func(e inventory.Entry) bool { return e.Driver == d && e.Release != "" && isWorkload(e.Key) })
}

// unasked are the drivers that are installed and not asked for.
func (s *site) unasked() []matrix.Driver {
	wanted := s.wanted()
	return slices.DeleteFunc(s.inventory.Drivers(), func(d matrix.Driver) bool { return slices.Contains(wanted, d) })
}

func (s *site) wanted() []matrix.Driver {
	rules, _, _ := policies(s.config.Spec) //nolint:errcheck // what is wrong with pins is reported by deciding
	return asked(rules)
}

// remembered is the spec with the providers and settings of pods that drivers were last rendered from.
func (s *site) remembered() v1alpha1.VDOConfigSpec {
	spec, was := s.spec, s.inventory.Memory()
	spec.CloudProvider, spec.StorageProvider = was.CloudProvider, was.StorageProvider
	spec.Drivers, spec.Patches = was.Drivers, was.Patches
	return spec
}

// proven are the vCenters of a spec that let in what is there now, and unproven the
// names of the others.
func (s *site) proven(spec *v1alpha1.VDOConfigSpec) (proven map[string]render.VCenter, unproven []string) {
	proven = map[string]render.VCenter{}
	for _, name := range vCenterNames(spec) {
		if vc := s.vcenters[name]; vc.proven {
			proven[name] = vc.VCenter
		} else {
			unproven = append(unproven, name)
		}
	}
	return proven, unproven
}

// others splits the foreign workloads: one snapshot-controller of the version decided
// for serves as well as ours, any other is a conflict.
func (s *site) others(d decision) (conflicts []plan.Other, served bool) {
	wanted := d.version(matrix.SnapshotController)
	for _, w := range s.observed.Foreign() {
		if w.Driver == matrix.SnapshotController && (s.distribution == openshift || w.Version == wanted) {
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

// secrets are the values that drivers' pods know and that may be in what they write: the
// accounts' passwords and the mirror's login.
func (s *site) secrets() []string {
	var all []string
	for _, vc := range s.vcenters {
		all = append(all, vc.read.Password)
	}
	found := map[string][]byte{"cloud": s.cluster.FoundCloudConfig, "storage": s.cluster.FoundStorageConfig} // by whoever installed them
	return slices.Concat(all, s.running, render.Passwords(found), s.login.secrets())
}

// configured are the Secrets with the drivers' configuration; see also copies.
var configured = []inventory.Key{
	{Kind: "Secret", Namespace: render.CPINamespace, Name: render.CPISecret}, {Kind: "Secret", Namespace: render.CSINamespace, Name: render.CSISecret},
}

// notePasswords notes those that drivers are configured with: the ones that run may know no others.
func (s *site) notePasswords(live plan.Live) {
	for _, key := range configured {
		s.running = append(s.running, render.Passwords(secretData(live[key]))...)
	}
	for _, key := range copies {
		s.running = append(s.running, login{data: secretData(live[key])[corev1.DockerConfigJsonKey]}.secrets()...)
	}
}
