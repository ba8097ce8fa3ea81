package vdoconfig

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drift"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/lookahead"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
	kube "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// fakeCluster is a cluster that is not OpenShift, and in which a snapshot-controller and upstream's webhook run.
type fakeCluster struct {
	Cluster

	data               map[string]map[string][]byte // of ConfigMaps and Secrets, by name
	live               plan.Live
	observed           *assess.Observed // nil: see Observe
	installed          map[string]bool  // VDOConfigs whose inventory is not empty
	unreadable         map[string]error // why an inventory cannot be read
	volumes, snapshots int
	unread             error // of pools, of which one takes the mirror set up
	unasked            error // why it is unknown whether a kind is served
	refusal            error // of a deletion
	corrupt            error // of the records
	deleted            bool
}

func (c *fakeCluster) Serves(schema.GroupKind) (bool, error) { return false, c.unasked }

func (*fakeCluster) APIServers(context.Context) ([]assess.APIServer, error) {
	return []assess.APIServer{{Version: "v1.33.0"}}, nil
}

func (c *fakeCluster) Data(_ context.Context, _ string, ref v1alpha1.KeyReference) (source.Data, error) {
	return source.Data{Values: c.data[ref.ConfigMap+ref.Secret], Version: "2"}, nil
}

func (*fakeCluster) Credentials(context.Context, *v1alpha1.VsphereCloudConfig) (credentials.Credentials, error) {
	return credentials.Credentials{}, nil
}

func (*fakeCluster) PolicyVersion(context.Context, *v1alpha1.DriverBundle) (string, error) {
	return "", nil
}

func (c *fakeCluster) Volumes(context.Context) (volumes, on int, _ error) { return c.volumes, 0, nil }

func (c *fakeCluster) OthersSnapshots(context.Context) (int, error) { return c.snapshots, nil }

func (c *fakeCluster) MachineConfigPools(context.Context) ([]decide.Pool, error) {
	return []decide.Pool{{Name: "worker", Target: "b", Has: "a"}}, c.unread
}

func (c *fakeCluster) Read(context.Context, []inventory.ID) (plan.Live, map[inventory.Key]error, error) {
	return c.live, nil, nil
}

func (c *fakeCluster) Observe(context.Context) (assess.Observed, error) {
	if c.observed != nil {
		return *c.observed, nil
	}
	d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "snapshot-controller"}}
	d.Labels = map[string]string{render.LabelManagedBy: render.ManagedBy, "vdo.vmware.com/version": "8.2.0"}
	left := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: render.CSINamespace, Name: drivers.Webhook}}
	left.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.k8s.io/csi-vsphere/syncer:v3.3.1"}}
	return assess.Observed{Deployments: []appsv1.Deployment{d, left}}, nil
}

func (*fakeCluster) ObserveListed(context.Context) (assess.Observed, error) {
	return assess.Observed{}, nil
}

func (*fakeCluster) DryRun(context.Context, []render.Object, plan.Live) (map[inventory.Key]plan.Outcome, error) {
	return nil, nil
}

func (*fakeCluster) Apply(
	_ context.Context, s plan.Step, _ *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	return s.Object, nil
}

func (c *fakeCluster) Delete(context.Context, plan.Step) error { c.deleted = true; return c.refusal }

func (c *fakeCluster) Key(context.Context, string, ...string) ([]byte, string, error) {
	return []byte("key"), hashSecret, c.corrupt
}

func (c *fakeCluster) LoadInventory(_ context.Context, of types.NamespacedName) (l cluster.Loaded, _ error) {
	if c.installed[of.Name] {
		l.Inventory = inventory.Of(inventory.Entry{})
	}
	return l, c.unreadable[of.Name]
}

func (*fakeCluster) SaveInventory(
	_ context.Context, _ types.NamespacedName, inv inventory.Inventory, _ cluster.Loaded,
) (cluster.Loaded, error) {
	return cluster.Loaded{Inventory: inv}, nil
}

func (*fakeCluster) DeleteInventory(context.Context, types.NamespacedName) error { return nil }

func because(reason fault.Reason) error {
	return &fault.Error{Reason: reason, Err: errors.New("why")}
}

// carried is the project's own matrix: reading it takes longer than what is tested of a site.
var carried = sync.OnceValues(func() (*matrix.Document, error) { return matrix.Parse("default", matrix.Default()) })

// holding is a bundle with releases, as it was opened.
func holding(t *testing.T, digest, releases string) *opened {
	read, err := carried()
	require.NoError(t, err)
	doc := *read
	doc.Releases = slices.Clone(doc.Releases) // some tests change them
	lock := &bundle.Lock{}
	for _, id := range releaseIDs(releases) {
		lock.Releases = append(lock.Releases, bundle.Release{Driver: id.Driver, Version: id.Version})
	}
	source := &v1alpha1.DriverBundle{}
	source.Status.Repository, source.Status.Digest = "mirror.site/vdo", digest
	return &opened{source: source, contents: &bundle.Contents{Lock: lock}, matrix: &doc}
}

const (
	vcCloud   = "vc"
	vcStorage = "vc-storage"
)

func pairRequested() v1alpha1.VDOConfigSpec {
	return v1alpha1.VDOConfigSpec{
		CloudProvider:   &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{vcCloud}},
		StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: vcStorage}}
}

// siteOf is a pass over a site of Kubernetes 1.33 with a bundle and with what is installed, of which nothing else was
// read. Its drivers use a vCenter each.
func siteOf(t *testing.T, bundle, installed string) *pass {
	t.Helper()
	accepted := holding(t, "sha256:new", bundle)
	r := &Reconciler{
		Client: clientOf(&v1alpha1.DriverBundle{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "site"}}),
		Store:  shelf{"sha256:last": holding(t, "sha256:last", "csi@3.5.1"), "sha256:new": accepted},
		Trust:  nobody{"sha256:last": true, "sha256:new": true}, Cluster: &fakeCluster{},
		Recorder: &events.FakeRecorder{}, Now: func() time.Time { return time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC) },
	}
	p := r.newPass(&v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: pairRequested()})
	p.observed, p.bundle, p.hash, p.kept.keyIn = &assess.Observed{}, accepted, make([]byte, 32), hashSecret
	p.site = matrix.Facts{Installed: map[matrix.Driver]matrix.Version{}, Kubernetes: mustVersion("1.33.0"),
		VCenters: []matrix.VCenter{{Name: vcCloud, Version: mustVersion("8.0.3")}}}
	p.vcenters = map[string]vcenter{}
	for _, id := range releaseIDs(installed) {
		key := inventory.Key{Group: "apps", Kind: "Deployment", Namespace: "kube-system", Name: string(id.Driver)}
		p.site.Installed[id.Driver] = id.Version
		entry := inventory.Entry{ID: inventory.ID{Key: key, Version: "v1"}, Driver: id.Driver, Release: id.String()}
		p.inventory = p.inventory.With(entry)
	}
	p.facts.inventory = p.inventory
	return p
}

func clientOf(objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build()
}

// withCSI is a site where csi@3.5.1 runs, with a bundle that does not hold it.
func withCSI(t *testing.T) *pass {
	t.Helper()
	p := siteOf(t, "snapshot-controller@8.2.0 csi@3.7.3", "csi@3.5.1")
	p.config.Spec.CloudProvider, p.spec.CloudProvider = nil, nil
	last := revision.Revision{Bundle: "mirror.site/vdo@sha256:last", Releases: []string{"csi@3.5.1"}}
	p.upgrades.current, p.tried = p.currentOfRecords(t.Context(), revision.Record{Revision: last}), nil
	return p
}

func TestWhatSomebodyElseInstalledStaysByATrustedBundle(t *testing.T) {
	for _, trusted := range []bool{true, false} {
		s := withCSI(t)
		s.bundle, s.upgrades.current = holding(t, "sha256:new", "csi@3.5.1 csi@3.7.3"), nil
		s.facts.inventory, s.gated, s.bundleGated = inventory.Inventory{}, because(fault.Expired), !trusted
		d := resolved(s)
		require.Equal(t, map[bool]string{true: "3.5.1"}[trusted], d.version(matrix.CSI), trusted)
		if trusted {
			require.Equal(t, "sha256:new", d.bundleOf(matrix.CSI).source.Status.Digest)
		}
	}
}

func TestWithoutABundleNothingIsDecided(t *testing.T) {
	s := withCSI(t)
	s.bundle = nil
	require.Nil(t, resolved(s).from)
}

func TestWhatTheCheckOfAVCenterMeans(t *testing.T) {
	suspend := func(v *v1alpha1.VsphereCloudConfig) {
		v.Status.VerifiedCredentials += credentials.Checked(v)
		v.Spec.Suspend, v.Generation, v.Status.ObservedGeneration = true, 3, 3
	}
	for name, c := range map[string]struct {
		ready    metav1.ConditionStatus
		edit     func(*v1alpha1.VsphereCloudConfig)
		unread   error
		verified bool
		gated    fault.Reason
		waiting  bool
	}{
		"let in":                  {ready: metav1.ConditionTrue, verified: true},
		"refused":                 {ready: metav1.ConditionFalse, edit: func(v *v1alpha1.VsphereCloudConfig) { v.Status.VerifiedCredentials = "" }, gated: fault.Unauthorized},
		"away, and let in before": {ready: metav1.ConditionFalse, verified: true, gated: fault.Unauthorized},
		"another Secret since":    {ready: metav1.ConditionTrue, edit: func(v *v1alpha1.VsphereCloudConfig) { v.Status.VerifiedCredentials = "u/0" }, waiting: true},
		"refused, another Secret since": {ready: metav1.ConditionFalse, edit: func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.CredentialsVersion, v.Status.VerifiedCredentials = "u/0", ""
		}, waiting: true},
		"another spec since": {ready: metav1.ConditionTrue, edit: func(v *v1alpha1.VsphereCloudConfig) { v.Generation++ }, waiting: true},
		"suspended since":    {ready: metav1.ConditionTrue, edit: suspend, verified: true},
		"suspended and changed since": {ready: metav1.ConditionTrue, edit: func(v *v1alpha1.VsphereCloudConfig) {
			suspend(v)
			v.Spec.Thumbprint = "AA"
		}, gated: fault.Refused},
		"another one answers": {ready: metav1.ConditionFalse, edit: func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.VerifiedCredentials, v.Status.InstanceUUID, v.Status.UnacceptedInstanceUUID = "", "was", "b"
		}, gated: fault.Unauthorized},
		"the drivers run with another one": {ready: metav1.ConditionTrue, edit: func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.InstanceUUID = "new"
		}, gated: fault.Conflict},
		"it replaces that": {ready: metav1.ConditionTrue, edit: func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.InstanceUUID, v.Spec.AcceptInstanceUUID = "new", "new"
		}, verified: true},
		"it is that": {ready: metav1.ConditionTrue, edit: func(v *v1alpha1.VsphereCloudConfig) {
			v.Status.InstanceUUID = "was"
		}, verified: true},
		"the Secret cannot be read": {ready: metav1.ConditionTrue, unread: because(fault.NotFound), gated: fault.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			v := &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Name: "vc", Generation: 2}}
			v.Status = v1alpha1.VsphereCloudConfigStatus{ObservedGeneration: 2, Version: "8.0.3", CredentialsVersion: "u/1", VerifiedCredentials: "u/1",
				Conditions: []metav1.Condition{{Type: "Ready", Status: c.ready, Reason: string(fault.Unauthorized), ObservedGeneration: 2}}}
			if c.edit != nil {
				c.edit(v)
			}
			read := credentials.Credentials{Username: "u", Password: "p", Version: "u/1", CA: []byte("ca")}
			vc := judgeVCenter(v, "was :0 a b", read, c.unread)
			require.Equal(t, c.verified, vc.verified)
			require.Equal(t, c.verified, string(vc.CA) == "ca")
			require.Equal(t, c.verified, vc.Credentials.Password == "p", "nobody has what was not let in")
			require.Equal(t, c.waiting, vc.waiting != "")
			require.Equal(t, c.gated != "", vc.gated != nil)
			if c.gated != "" {
				require.Equal(t, c.gated, fault.ReasonOf(vc.gated))
			}
			require.Equal(t, "8.0.3", vc.version.Version.String())
			require.Equal(t, strings.TrimLeft(v.Status.InstanceUUID+" :0 ", " "), vc.where)

			// The cloud provider deletes no Nodes while another vCenter answers it.
			g := withCSI(t)
			g.spec.CloudProvider = &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"vc"}}
			g.Cluster, g.vcenters = &fakeCluster{}, map[string]vcenter{"vc": vc}
			require.NoError(t, g.collectExisting(t.Context(), nil))
			require.Equal(t, vc.another, g.cluster.AnotherVCenter)
			require.Equal(t, v.Status.UnacceptedInstanceUUID != "" || c.gated == fault.Conflict, vc.another)
			gates := preflight.Gate([]preflight.Result{blocking(matrix.CPI, false)})
			for _, g.checks = range []checks{{pending: true}, {gates: gates}} {
				require.NoError(t, g.collectExisting(t.Context(), nil))
				require.Equal(t, vc.another || vc.replaced, g.cluster.AnotherVCenter, "nor until the checks passed")
			}
			g.checks, g.frozen = checks{}, "the VDOConfig is being deleted"
			require.NoError(t, g.collectExisting(t.Context(), nil))
			require.Equal(t, vc.another || vc.replaced, g.cluster.AnotherVCenter)

			v.Namespace, g.config.Spec, g.site.VCenters = "ns", g.spec, nil
			g.Client = clientOf(v)
			require.NoError(t, g.collectVCenters(t.Context()))
			require.Len(t, g.site.VCenters, 1, "drivers are chosen for its version")
		})
	}
}

// A bundle that the trust policy of now does not accept, or that was not held against it, installs nothing.
func TestWhatTheVerificationOfABundleMeans(t *testing.T) {
	is := func(status metav1.ConditionStatus, generation int64, policy string) *v1alpha1.DriverBundle {
		b := &v1alpha1.DriverBundle{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		b.Status.VerifiedPolicy, b.Status.Conditions = policy, []metav1.Condition{
			{Type: v1alpha1.ConditionVerified, Status: status, Reason: string(fault.Untrusted), ObservedGeneration: generation}}
		return b
	}
	for name, c := range map[string]struct {
		b             *v1alpha1.DriverBundle
		good, waiting bool
	}{
		"it is good":                     {b: is(metav1.ConditionTrue, 2, "p"), good: true},
		"it is revoked":                  {b: is(metav1.ConditionFalse, 2, "p")},
		"the policy cannot be read":      {b: is(metav1.ConditionUnknown, 2, "p")},
		"the DriverBundle is newer":      {b: is(metav1.ConditionTrue, 1, "p"), waiting: true},
		"the policy is newer":            {b: is(metav1.ConditionTrue, 2, "before"), waiting: true},
		"nobody has held it against any": {b: &v1alpha1.DriverBundle{}, waiting: true},
	} {
		g := withCSI(t)
		require.Equal(t, c.good, g.verifiedBundle(c.b, "p"), name)
		require.Equal(t, !c.good, g.bundleGated, name)
		require.Equal(t, c.waiting, g.waiting != "", name)
		require.Equal(t, !c.good && !c.waiting, fault.ReasonOf(g.facts.gated) == fault.Untrusted, name)
		require.Equal(t, !c.good, g.gateOfAll() != nil, name)
	}
}

// Without the accepted bundle what is installed is repaired from the one that it came from, and nothing is installed.
func TestWithoutTheAcceptedBundleTheLastOneCounts(t *testing.T) {
	named := func(name string) *v1alpha1.DriverBundle {
		b := &v1alpha1.DriverBundle{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		b.Status.Repository, b.Status.Digest = "mirror.site/vdo", "sha256:gone"
		return b
	}
	for name, c := range map[string]struct {
		exists []client.Object
		spec   string
		gated  fault.Reason
	}{
		"there is none":          {nil, "", fault.NotFound},
		"there are two":          {[]client.Object{named("a"), named("b")}, "", fault.InvalidInput},
		"none of that name":      {[]client.Object{named("a")}, "b", fault.NotFound},
		"it cannot be read":      {[]client.Object{named("a")}, "", fault.Unreachable},
		"the one that was named": {[]client.Object{named("a"), named("b")}, "b", fault.Unreachable},
	} {
		g := withCSI(t)
		g.Client = clientOf(c.exists...)
		g.Cluster, g.bundle = &fakeCluster{}, nil
		rev := revision.Revision{Bundle: "mirror.site/vdo@sha256:last", Releases: []string{"csi@3.5.1"}}
		g.facts.inventory = g.facts.inventory.WithMemory(inventory.Memory{Revisions: healthy(rev, g.at0())})
		if c.spec != "" {
			g.config.Spec.Bundle = &v1alpha1.LocalReference{Name: c.spec}
		}
		require.NoError(t, g.collectBundle(t.Context()), name)
		require.Equal(t, c.gated, fault.ReasonOf(g.facts.gated), name)
		require.True(t, g.bundleGated, name)
		require.Equal(t, "sha256:last", g.bundle.source.Status.Digest, name)
		require.Equal(t, []string{"csi@3.5.1"}, chosen(resolved(g)), name)

		memory := inventory.Memory{Revisions: g.facts.inventory.Memory().Revisions}
		g.bundle, g.facts.inventory = nil, inventory.Inventory{}.WithMemory(memory)
		require.NoError(t, g.collectBundle(t.Context()), name)
		require.Nil(t, g.bundle, "nothing is installed")
		require.Equal(t, c.gated, fault.ReasonOf(g.facts.unresolved), name)
	}
}

// Who has installed something is in force, then who has the finalizer, then the older one, then by name.
func TestWhoIsInForce(t *testing.T) {
	is := func(name string, at int64, finalizers ...string) *v1alpha1.VDOConfig {
		return &v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, CreationTimestamp: metav1.Unix(at, 0), Finalizers: finalizers}}
	}
	for why, c := range map[string]struct {
		first, second *v1alpha1.VDOConfig
		installed     map[string]bool
		unreadable    map[string]error
	}{
		"it has installed":         {is("z", 2), is("a", 1, v1alpha1.FinalizerDrivers), map[string]bool{"z": true}, nil},
		"its inventory is damaged": {is("z", 2), is("a", 1, v1alpha1.FinalizerDrivers), nil, map[string]error{"z": because(fault.Corrupt)}},
		"it has the finalizer":     {is("z", 2, v1alpha1.FinalizerDrivers), is("a", 1), nil, nil},
		"both have installed":      {is("z", 2, v1alpha1.FinalizerDrivers), is("a", 1), map[string]bool{"a": true, "z": true}, nil},
		"it is older":              {is("z", 1), is("a", 2), nil, nil},
		"its name is first":        {is("a", 1), is("z", 1), nil, nil},
	} {
		r := withCSI(t).Reconciler
		r.Cluster = &fakeCluster{installed: c.installed, unreadable: c.unreadable}
		r.Client = clientOf(c.first, c.second)
		for _, config := range []*v1alpha1.VDOConfig{c.first, c.second} {
			other, err := r.activeConfig(t.Context(), config)
			require.NoError(t, err)
			require.Equal(t, config == c.first, other == nil, why)
			r.Cluster = &fakeCluster{unreadable: map[string]error{"a": because(fault.Unreachable)}}
			_, err = r.activeConfig(t.Context(), config)
			require.Equal(t, fault.Unreachable, fault.ReasonOf(err), "the operator does not guess")
			r.Cluster = &fakeCluster{installed: c.installed, unreadable: c.unreadable}
		}
		r.Now = time.Now
		c.second.Spec.Suspend = true // which else means a repair before the removal
		out, err := r.Remove(t.Context(), c.second)
		require.NoError(t, err)
		require.Nil(t, out.(result).outcome.report, "one that is not active repairs nothing") //nolint:forcetypeassert // as it returns
	}
}

func TestWhatAPassMeans(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*pass)
		want []string
	}{
		"all is well": {nil, []string{"Ready", "Resolved=True", "Applied=True", "CSIReady=True"}},
		"no release fits": {func(p *pass) { p.outcome.resolved = because(fault.Incompatible) },
			[]string{"Fault", "Resolved=False", "Applied=True", "CSIReady=True"}},
		"the bundle is being verified": {func(p *pass) { p.facts.waiting = "DriverBundle site is being verified" },
			[]string{"Progressing", "Resolved=Unknown", "Applied=True", "CSIReady=True"}},
		"the next stage waits": {func(p *pass) { p.outcome.next.waits = "a node" }, []string{"Progressing", "Resolved=True", "Applied=Unknown", "CSIReady=True"}},
		"the API servers may not be asked": {func(p *pass) { p.facts.kubernetes.unread = because(fault.Forbidden) },
			[]string{"Fault", "Resolved=False", "Applied=True", "CSIReady=True"}},
		"objects are refused": {func(p *pass) { p.outcome.applied = because(fault.Forbidden) }, []string{"Fault", "Resolved=True", "Applied=False", "CSIReady=True"}},
		"the API server is away": {func(p *pass) {
			p.outcome.applied, p.outcome.report, p.outcome.plan, p.decision = because(fault.Unreachable), nil, nil, decision{}
		}, []string{"Fault", "Resolved=Unknown", "Applied=False", "CSIReady=Unknown"}},
		"a watch is refused": {func(p *pass) { p.outcome.unwatched = because(fault.Forbidden) },
			[]string{"Fault", "Resolved=True", "Applied=True", "CSIReady=True"}},
		"volumes keep the driver": {func(p *pass) { p.outcome.volumes = because(fault.Refused) },
			[]string{"Waiting", "Resolved=True", "Applied=True", "CSIReady=True"}},
		"volumes and a fault": {func(p *pass) {
			p.outcome.volumes, p.outcome.renewed = because(fault.Refused), because(fault.Forbidden)
		},
			[]string{"Fault", "Resolved=True", "Applied=True", "WebhookCertificateValid=False", "CSIReady=True"}},
		"suspended, nothing to do": {func(p *pass) { p.config.Spec.Suspend = true }, []string{"Ready", "Resolved=True", "Applied=True", "CSIReady=True"}},
		"suspended with changes": {func(p *pass) {
			p.config.Spec.Suspend, p.outcome.plan.Steps = true, []plan.Step{{Action: plan.Change}}
		},
			[]string{"Suspended", "Resolved=True", "Applied=False", "CSIReady=True"}},
		"a removal waits for one in force": {func(p *pass) {
			p.outcome, p.decision = outcome{failures: failures{retentions: because(fault.Refused)}}, decision{}
		}, []string{"Fault", "Resolved=Unknown"}},
		"Antrea is installed too": {func(p *pass) {
			p.decision.releases = append(p.decision.releases, only(matrix.CNI, "2.7.0").releases...)
			p.outcome.report.Drivers[matrix.CNI] = assess.Health{Version: "2.7.0", Complete: true}
		}, []string{"Ready", "Resolved=True", "Applied=True", "CNIReady=True", "CSIReady=True"}},
		"the next minor is not covered": {func(p *pass) {
			lacks := []string{"Kubernetes 1.34"}
			p.decision.outlook = lookahead.Outlook{Looked: lacks, Lacks: lacks}
		}, []string{"Ready", "Resolved=True", "Applied=True", "Upgradeable=False", "CSIReady=True"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := &v1alpha1.VDOConfig{}
			config.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue}, {Type: "CSIReady", Status: metav1.ConditionTrue}}
			health := map[matrix.Driver]assess.Health{matrix.CSI: {Version: "1.0.0", Complete: true}}
			p := siteOf(t, "", "")
			p.config, p.decision = config, only(matrix.CSI, "1.0.0")
			p.decision.from = &opened{}
			p.outcome = outcome{report: &assess.Report{Drivers: health}, plan: &plan.Plan{}}
			if c.edit != nil {
				c.edit(p)
			}
			before := config.DeepCopy()
			conditions := p.conditions(config)
			require.Equal(t, before, config, "it only reads")
			got := []string{string(conditions.Phase.State)}
			for _, part := range conditions.Parts {
				got = append(got, part.Type+"="+string(part.Status))
			}
			absent := func(s string) bool { return strings.HasSuffix(s, "=") }
			require.Equal(t, c.want, slices.DeleteFunc(got, absent))
			if conditions.Phase.State == condition.StateFault {
				require.Error(t, conditions.Phase.Err)
			}
		})
	}
}

// Left as it is, the cloud provider is remembered as it was told last, or as no one knows what it
// was told; that is forgotten once it is no longer requested.
func TestWhatTheCloudProviderIsToldIsRememberedWhileItIsLeftAsItIs(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*pass)
		want bool
	}{
		"nobody knows":        {func(s *pass) { s.cluster.UnsureOfNodes = true }, true},
		"it keeps Nodes":      {func(s *pass) { s.cluster.KeepsNodes = true }, true},
		"it keeps none":       {func(*pass) {}, false},
		"it is not asked for": {func(s *pass) { s.cluster.UnsureOfNodes, s.config.Spec.CloudProvider = true, nil }, false},
	} {
		s := withCSI(t)
		s.config.Spec.CloudProvider = &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"vc"}}
		c.edit(s)
		now := inventory.Memory{}
		s.searchedNow(&now, rendering{Rendered: &render.Rendered{}}, false)
		require.Equal(t, c.want, now.KeepsNodes, name)
	}
}

// No one knows whether the cloud provider is to keep Nodes where the records are gone, and what else tells it.
func TestUnsureOfNodes(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*pass)
		config string
		want   bool
	}{
		"its configuration is gone":          {func(*pass) {}, "", true},
		"all is there":                       {func(*pass) {}, "x", false},
		"its DaemonSet is gone":              {func(s *pass) { s.observed.DaemonSets = nil }, "x", true},
		"it is installed for the first time": {func(s *pass) { s.config.Status = v1alpha1.VDOConfigStatus{} }, "", false},
		"the records have it":                {func(s *pass) { s.facts.inventory = withCSI(t).inventory }, "", false},
	} {
		ds := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vsphere-cloud-controller-manager"}}
		s := withCSI(t)
		s.facts.inventory = inventory.Inventory{}
		s.config.Status = v1alpha1.VDOConfigStatus{Bundle: "mirror.site/vdo@sha256:last"}
		s.observed = &assess.Observed{DaemonSets: []appsv1.DaemonSet{ds}}
		c.edit(s)
		require.Equal(t, c.want, s.unsureOfNodes([]byte(c.config)), name)
	}
}

func TestExcludedNodesAreNotLookedAt(t *testing.T) {
	var all []*corev1.Node
	for _, labels := range []map[string]string{nil, {"site/metal": "no"}, {"cloud": "other"}} {
		all = append(all, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}})
	}
	g := &pass{}
	require.Equal(t, all, g.onVSphere(all))
	g.spec.ExcludedNodes = map[string]string{"site/metal": "yes", "cloud": "other"}
	require.Equal(t, all[:2], g.onVSphere(all))
	require.NotNil(t, all[2], "what was observed stays as it is")
}

func secretOf(data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"data": data}}
}

// What drivers' pods know is known as a secret: passwords that are there, whether the
// vCenter let them in or not, and each form of the mirror's login.
func TestSecretsOfASite(t *testing.T) {
	pair := base64.StdEncoding.EncodeToString([]byte("robot:pull:word"))
	known := credentials.Credentials{Password: "hunter2"}
	s := facts{vcenters: map[string]vcenter{"vc": judgeVCenter(&v1alpha1.VsphereCloudConfig{}, "", known, nil)}}
	s.login.data = []byte(`{"auths":{"m":{"auth":"` + pair + `"},"n":{"username":"u","password":"plain","identitytoken":"idt","registrytoken":"rgt"}}}`)
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	live := plan.Live{
		{Kind: "Secret", Namespace: "kube-system", Name: "vsphere-cloud-secret"}:        secretOf(map[string]any{"vc1.site.password": encoded("clouds"), "password_2": encoded("clouds2\n"), "vc1.site.username": encoded("u")}),
		{Kind: "Secret", Namespace: "vmware-system-csi", Name: "vsphere-config-secret"}: secretOf(map[string]any{"csi-vsphere.conf": encoded("[VirtualCenter \"vc1.site\"]\nuser = \"u\"\npassword = \"sto\\\"rage\"\n")}),
		copies[1]: secretOf(map[string]any{".dockerconfigjson": encoded(`{"auths":{"m":{"username":"u","password":"of the pods"}}}`)}),
	}
	s.cluster.ExistingCloudConfig = []byte("vcenter:\n  vc1:\n    user: u\n    password: by hand\n")
	got := s.secrets(live)
	for _, want := range []string{"hunter2", "clouds", "clouds2", "sto\"rage", "by hand", pair, "pull:word", "plain", "idt", "rgt", "of the pods"} {
		require.Contains(t, got, want)
	}
	require.NotContains(t, got, "u")
	require.Empty(t, (&facts{}).secrets(nil))
	require.Empty(t, login{data: []byte("no JSON")}.secrets())
}

// awayNode has one of the two pods of a cloud provider's DaemonSet, which is not updated.
func awayNode(pods, updated int32) *assess.Observed {
	app := map[string]string{"app": "cloud"}
	return &assess.Observed{
		Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "away"}}},
		Pods: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Labels: app},
			Spec: corev1.PodSpec{NodeName: "away"}}},
		DaemonSets: []appsv1.DaemonSet{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vsphere-cloud-controller-manager",
				Labels: map[string]string{render.LabelManagedBy: render.ManagedBy, render.LabelVersion: "1.33.1"}},
			Spec:   appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: app}},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: pods, UpdatedNumberScheduled: updated},
		}},
	}
}

// A DaemonSet that is being rolled out may lack the pods of nodes that are not ready beside those
// that its manifest says; the template, and what was rendered, stay as they are.
func TestNodesThatAreNotReadyDoNotUseUpWhatMayBeUnavailable(t *testing.T) {
	rolling := func(field string, value any) map[string]any {
		return map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{field: value}}
	}
	for name, c := range map[string]struct {
		updated int32
		is      map[string]any
		want    map[string]any
	}{
		"a number":                {1, rolling("maxUnavailable", int64(1)), rolling("maxUnavailable", int64(2))},
		"a percentage":            {1, rolling("maxUnavailable", "11%"), rolling("maxUnavailable", int64(3))},
		"a surge":                 {1, rolling("maxSurge", int64(1)), rolling("maxSurge", int64(2))},
		"the default":             {1, map[string]any{"type": "RollingUpdate"}, rolling("maxUnavailable", int64(2))},
		"no pod is replaced":      {1, map[string]any{"type": "OnDelete"}, map[string]any{"type": "OnDelete"}},
		"no roll-out is going on": {10, rolling("maxUnavailable", int64(1)), rolling("maxUnavailable", int64(1))},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"updateStrategy": c.is}}}
		o.SetAPIVersion("apps/v1")
		o.SetKind("DaemonSet")
		o.SetNamespace("kube-system")
		o.SetName("vsphere-cloud-controller-manager")
		was := o.DeepCopy()
		r := &render.Rendered{Stages: []render.Stage{{Objects: []render.Object{{Unstructured: o}}}}}
		(&facts{observed: awayNode(10, c.updated)}).adapt(r, nil, drift.Rules{})
		got, _, _ := unstructured.NestedMap(r.Stages[0].Objects[0].Object, "spec", "updateStrategy")
		require.Equal(t, c.want, got, name)
		require.Equal(t, was, o, name)
	}
}

// What is wrong on nodes that are not ready is not held against a revision, and while it may run
// on no other its time does not count.
func TestARevisionDoesNotFailForNodesThatAreNotReady(t *testing.T) {
	for pods, clockPaused := range map[int32]bool{1: true, 2: false} {
		p := withCSI(t)
		p.observed = awayNode(pods, pods-1)
		p.outcome.report = &assess.Report{Drivers: map[matrix.Driver]assess.Health{matrix.CPI: {Version: "1.33.1",
			Findings: []assess.Finding{{Driver: matrix.CPI, Reason: fault.Unreachable, Away: true}}}}}
		look := p.lookAt(revision.Record{Revision: revision.Revision{Releases: []string{"cpi@1.33.1"}}})
		require.Equal(t, clockPaused, look.ClockPaused)
		require.Empty(t, look.Findings)
	}
}
