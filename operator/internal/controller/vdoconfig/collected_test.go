package vdoconfig

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

func TestDriversAreChosenForTheLowestAPIServerAndNeverGoBack(t *testing.T) {
	up, down := func(v string) assess.APIServer { return assess.APIServer{Address: "10.0.0.1:6443", Version: v} },
		assess.APIServer{Address: "10.0.0.3:6443", Err: errors.New("connection refused")}
	now := time.Date(2026, 1, 3, 1, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		servers    []assess.APIServer
		remembered string
		want       string
		note       string
	}{
		"one":                             {[]assess.APIServer{up("v1.33.4")}, "", "v1.33.4", ""},
		"one that was upgraded":           {[]assess.APIServer{up("v1.34.2")}, "v1.33.4", "v1.34.2", ""},
		"the newer one answers":           {[]assess.APIServer{up("v1.34.2"), up("v1.33.4"), up("v1.34.2")}, "v1.33.4", "v1.33.4", "are of Kubernetes v1.33.4 to v1.34.2"},
		"versions are no strings":         {[]assess.APIServer{up("v1.9.2"), up("v1.10.4")}, "", "v1.9.2", ""},
		"never back":                      {[]assess.APIServer{up("v1.34.2"), up("v1.33.4")}, "v1.34.2", "v1.34.2", "an API server is of Kubernetes v1.33.4"},
		"one may be older":                {[]assess.APIServer{up("v1.34.2"), up("v1.34.2"), down}, "v1.33.4", "v1.33.4", "10.0.0.3:6443: connection refused"},
		"addresses cannot be read":        {[]assess.APIServer{up("v1.34.2"), {Err: errors.New("forbidden")}}, "v1.33.4", "v1.33.4", "forbidden; drivers are chosen for Kubernetes v1.33.4"},
		"one answers with something else": {[]assess.APIServer{up("v1.34.2"), up("nginx")}, "", "v1.34.2", `it answers with "nginx", which is no Kubernetes version`},
		"the only one has no version":     {[]assess.APIServer{up("")}, "v1.33.4", "v1.33.4", "no Kubernetes version"},
		"a patch never goes back":         {[]assess.APIServer{up("v1.33.5"), up("v1.33.4")}, "v1.33.5", "v1.33.5", ""},
		"one may be of another patch":     {[]assess.APIServer{up("v1.33.5"), down}, "v1.33.4", "v1.33.5", "10.0.0.3:6443: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := kubernetesFor(c.servers, c.remembered, time.Time{}, now)
			require.NoError(t, err)
			require.Equal(t, c.want, k.reported)
			require.Equal(t, c.want, "v"+k.version.String())
			notes := few(k.notes)
			if c.note != "" {
				require.Contains(t, notes, c.note)
				require.Contains(t, notes, "drivers are chosen for Kubernetes "+c.want)
			} else if name != "versions are no strings" {
				require.Empty(t, notes)
			}
		})
	}
	_, err := kubernetesFor([]assess.APIServer{down}, "v1.33.4", now, now)
	require.ErrorContains(t, err, "none of 1 answers")
	_, err = kubernetesFor([]assess.APIServer{up("")}, "", now, now)
	require.ErrorContains(t, err, "no Kubernetes version", "nothing is known at all")

	missing := &fault.Error{Reason: fault.Forbidden, Op: "read", Subject: "the addresses of the API servers"}
	k, err := kubernetesFor([]assess.APIServer{up("v1.34.2"), {Err: missing}}, "v1.33.4", now, now)
	require.NoError(t, err)
	require.Equal(t, "v1.33.4", k.reported)
	require.ErrorIs(t, k.unread, missing, "it does not pass by itself")
	k, err = kubernetesFor([]assess.APIServer{up("v1.34.2"), down}, "v1.33.4", now, now)
	require.NoError(t, err)
	require.NoError(t, k.unread)
}

// Behind a load balancer no API server can be asked by itself: a newer minor counts once nothing older
// has answered for an hour.
func TestANewerAnswerCountsInTheEndThoughNotAllCanBeAsked(t *testing.T) {
	now := time.Date(2026, 1, 3, 1, 0, 0, 0, time.UTC)
	for ago, c := range map[time.Duration]struct{ answer, want, note string }{
		59 * time.Minute: {"v1.34.2", "v1.33.4", "Kubernetes v1.34.2 counts from 2026-01-03T01:01:00Z on"},
		time.Hour:        {"v1.34.2", "v1.34.2", "drivers are chosen for Kubernetes v1.34.2"},
		2 * time.Hour:    {"v1.33.4", "v1.33.4", "the version of some API servers is unknown"},
		-time.Hour:       {"v1.34.2", "v1.33.4", "counts from 2026-01-03T02:00:00Z on"}, // by a clock that was ahead
	} {
		servers := []assess.APIServer{{Version: c.answer}, {Address: "10.0.0.1:6443", Err: errors.New("certificate signed by unknown authority")}}
		k, err := kubernetesFor(servers, "v1.33.4", now.Add(-ago), now)
		require.NoError(t, err)
		require.Equal(t, c.want, k.reported, ago)
		require.Contains(t, few(k.notes), c.note, ago)
		require.Equal(t, c.answer == c.want, k.newerSince.IsZero(), "it is remembered while it is waited for: %s", ago)
	}
}

// What a cloud provider is configured with is what its DaemonSet mounts, wherever that is. Where
// that cannot be read no one knows where it looks for nodes.
func TestTheConfigurationThatTheCloudProviderMountsIsFound(t *testing.T) {
	const conf = "[VirtualCenter \"vc1.site.example\"]\ndatacenters = \"dc, dc2\"\n"
	const ours, none = "[VirtualCenter \"vc1.site.example\"]\ndatacenters = \"dc\"\n", "global:\n  port: 443\n"
	found := []string{"vc1.site.example/dc", "vc1.site.example/dc2"}
	volume := func(source corev1.VolumeSource) []corev1.Volume {
		return []corev1.Volume{{Name: "conf", VolumeSource: source}}
	}
	configMap := func(name string, items ...corev1.KeyToPath) []corev1.Volume {
		return volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items}})
	}
	remembered := inventory.Inventory{}.WithMemory(inventory.Memory{CloudProvider: &v1alpha1.CloudProvider{}, Searched: []string{"vc1.site.example"}})
	for name, c := range map[string]struct {
		volumes  []corev1.Volume // of its DaemonSet; nil where there is none
		args     []string        // of its container
		edit     func(*pass)
		searched []string
		config   string
		found    bool // it is someone else's
		unsure   bool
	}{
		"upstream's":                       {volumes: configMap("vsphere-cloud-config"), config: ours, found: true, searched: found[:1]},
		"upstream's that names no vCenter": {volumes: configMap("vsphere-cloud-config"), config: none, found: true, unsure: true},
		"ours":                             {volumes: configMap("vsphere-cloud-config"), edit: func(s *pass) { s.facts.inventory = remembered }, config: ours, searched: []string{"vc1.site.example"}},
		"upstream's deprecated":            {volumes: configMap("cloud-config"), config: conf, found: true, searched: found},
		"likewise, seen before":            {volumes: configMap("cloud-config"), edit: func(s *pass) { s.facts.inventory = remembered }, config: conf, found: true, searched: []string{"vc1.site.example"}},
		"under another key":                {volumes: configMap("other", corev1.KeyToPath{Key: "x", Path: "vsphere.conf"}), config: conf, found: true, searched: found},
		"in a Secret":                      {volumes: volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "conf"}}), config: conf, found: true, searched: found},
		"on the node":                      {volumes: volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/kubernetes"}}), unsure: true},
		"in a ConfigMap that is gone":      {volumes: configMap("gone"), unsure: true},
		"none is named":                    {volumes: configMap("vsphere-cloud-config"), args: []string{"--v=2"}},
		"named by the next argument":       {volumes: configMap("cloud-config"), args: []string{"--cloud-config", "/etc/cloud/vsphere.conf"}, config: conf, found: true, searched: found},
	} {
		g := withCSI(t)
		named := map[string][]byte{"vsphere.conf": []byte(conf)}
		data := map[string]map[string][]byte{"cloud-config": named, "conf": named, "other": {"x": []byte(conf)}}
		g.Cluster = &fakeCluster{data: data}
		if g.facts.inventory = (inventory.Inventory{}); c.config == ours || c.config == none {
			data["vsphere-cloud-config"] = map[string][]byte{"vsphere.conf": []byte(c.config)}
		}
		if c.args == nil {
			c.args = []string{"--v=2", "--cloud-config=/etc/cloud/vsphere.conf"}
		}
		if c.volumes != nil {
			g.observed.DaemonSets = []appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vsphere-cloud-controller-manager"},
				Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: c.volumes, Containers: []corev1.Container{{
					Args: c.args, VolumeMounts: []corev1.VolumeMount{{Name: "conf", MountPath: "/etc/cloud/"}}}}}}}}}
		}
		if c.edit != nil {
			c.edit(g)
		}
		g.spec.CloudProvider = &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"vc"}}
		require.NoError(t, g.collectExisting(t.Context(), nil), name)
		require.Equal(t, c.config, string(g.cluster.CloudConfig), name)
		require.Equal(t, c.found, len(g.cluster.ExistingCloudConfig) > 0, name)
		require.Equal(t, c.unsure, g.cluster.UnsureOfNodes, name)
		require.Equal(t, c.unsure, len(g.notes) > 0, name)
		require.ElementsMatch(t, c.searched, g.cluster.Searched, name)

		// While the configuration that is there is kept, where it looks stays known.
		var now inventory.Memory
		g.searchedNow(&now, rendering{Rendered: &render.Rendered{Cloud: &render.Cloud{}}}, true)
		require.ElementsMatch(t, c.searched, now.Searched, name)
	}
}

func TestNodesThatOnlyBeatStartNoPass(t *testing.T) {
	was := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1", Labels: map[string]string{"a": "b"}},
		Spec:   corev1.NodeSpec{ProviderID: "vsphere://1"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	for name, edit := range map[string]func(n *corev1.Node){
		"initialised": func(n *corev1.Node) { n.Spec.ProviderID = "" },
		"tainted":     func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} },
		"cordoned":    func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"upgraded":    func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.34.0" },
		"labelled":    func(n *corev1.Node) { n.Labels["a"] = "c" },
		"not ready":   func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown },
	} {
		is := was.DeepCopy()
		is.ResourceVersion = "2"
		is.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		require.False(t, nodeChanged.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}), name)
		edit(is)
		require.True(t, nodeChanged.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}), name)
	}
	require.True(t, nodeChanged.Create(event.CreateEvent{Object: was}))
	require.True(t, nodeChanged.Delete(event.DeleteEvent{Object: was}))
}

func TestOnlyTheDriversRegistrationStartsAPass(t *testing.T) {
	empty := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	with := empty.DeepCopy()
	with.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "csi.vsphere.vmware.com", NodeID: "n"}}
	topology := with.DeepCopy()
	topology.Spec.Drivers[0].TopologyKeys = []string{"zone"}
	again := with.DeepCopy()
	again.ResourceVersion = "9"
	update := func(was, is *storagev1.CSINode) bool {
		return csiNodeChanged.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is})
	}
	require.True(t, update(empty, with))
	require.True(t, update(with, topology))
	require.True(t, update(with, empty))
	require.False(t, update(with, again))
	require.False(t, csiNodeChanged.Create(event.CreateEvent{Object: empty}))
	require.True(t, csiNodeChanged.Create(event.CreateEvent{Object: with}))
	require.False(t, csiNodeChanged.Delete(event.DeleteEvent{Object: empty}))
	require.True(t, csiNodeChanged.Delete(event.DeleteEvent{Object: with}))
}

// When a bundle or a vCenter was looked at last is no reason for a pass: an idle operator would make two for one.
func TestOnlyWhatAPassReadsOfAVCenterOrABundleStartsOne(t *testing.T) {
	now := metav1.Now()
	vc := func(change func(*v1alpha1.VsphereCloudConfig)) bool {
		was, is := &v1alpha1.VsphereCloudConfig{}, &v1alpha1.VsphereCloudConfig{}
		change(is)
		return vcenterChanged.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is})
	}
	require.False(t, vc(func(v *v1alpha1.VsphereCloudConfig) { v.Status.CheckedAt, v.Status.AskedAt = &now, &now }))
	require.True(t, vc(func(v *v1alpha1.VsphereCloudConfig) { v.Status.VerifiedCredentials = "v" }))
	require.True(t, vc(func(v *v1alpha1.VsphereCloudConfig) { v.Status.Version = "8.0.3" }))
	ready := []metav1.Condition{{Type: "Ready"}}
	require.True(t, vc(func(v *v1alpha1.VsphereCloudConfig) { v.Status.Conditions = ready }))
	b := func(change func(*v1alpha1.DriverBundle)) bool {
		was, is := &v1alpha1.DriverBundle{}, &v1alpha1.DriverBundle{}
		change(is)
		return bundleChanged.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is})
	}
	require.False(t, b(func(b *v1alpha1.DriverBundle) { b.Status.HandledReconcileAt = "now" }))
	require.True(t, b(func(b *v1alpha1.DriverBundle) { b.Generation = 2 }))
	require.True(t, b(func(b *v1alpha1.DriverBundle) { b.Status.Digest = "sha256:a" }))
}

// blocking is a result that keeps a driver back, and with stops its configuration too.
func blocking(d matrix.Driver, stops bool) preflight.Result {
	return preflight.Result{ID: "vm-disk-uuid", Action: preflight.BlockInstall, Drivers: []matrix.Driver{d}, Stops: stops, Found: "amiss", Remedy: "mend it"}
}

func TestWhatIsKnownOfAQuestion(t *testing.T) {
	spec := pairRequested()
	q := preflight.NewQuestion(types.NamespacedName{Name: "site"}, &spec, nil)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before := &v1alpha1.PreflightStatus{Question: q.ID, Results: []v1alpha1.PreflightResult{{ID: "vm-scsi", Action: "BlockInstall", Drivers: []string{"csi"}, Found: "x"}}}
	other := &v1alpha1.PreflightStatus{Question: "other"}
	for name, c := range map[string]struct {
		was     *v1alpha1.PreflightStatus
		answer  *preflight.Answer
		pending bool
		gated   []matrix.Driver
	}{
		"nothing yet":                          {pending: true},
		"of another question":                  {was: other, answer: &preflight.Answer{Question: "other"}, pending: true},
		"an answer":                            {was: other, answer: &preflight.Answer{Question: q.ID, At: at, Results: []preflight.Result{blocking(matrix.CPI, true)}}, gated: []matrix.Driver{matrix.CPI}},
		"the status, after a restart":          {was: before, gated: []matrix.Driver{matrix.CSI}},
		"a new answer counts, not the status":  {was: before, answer: &preflight.Answer{Question: q.ID, At: at}},
		"the status, while an answer is older": {was: before, answer: &preflight.Answer{Question: "other"}, gated: []matrix.Driver{matrix.CSI}},
	} {
		t.Run(name, func(t *testing.T) {
			got := settled(c.was, q, c.answer)
			require.True(t, got.ran)
			require.Equal(t, c.pending, got.pending)
			require.Len(t, got.gates, len(c.gated))
			for _, d := range c.gated {
				require.Error(t, got.gates[d].Err)
			}
			if c.answer != nil && c.answer.Question == q.ID {
				require.Equal(t, q.ID, got.status.Question)
				require.Equal(t, at, got.status.CheckedAt.Time)
			} else {
				require.Same(t, c.was, got.status)
			}
		})
	}
}

func TestWhatMakesAnotherQuestion(t *testing.T) {
	id := func(change func(*v1alpha1.VDOConfigSpec, *preflight.Location)) string {
		spec, location := pairRequested(), preflight.Location{Name: "vc", Where: "vc.site:443 dc", Verified: true}
		change(&spec, &location)
		return preflight.NewQuestion(types.NamespacedName{}, &spec, []preflight.Location{location}).ID
	}
	same := id(func(*v1alpha1.VDOConfigSpec, *preflight.Location) {})
	require.Equal(t, "3ee39129ad79493a", same, "a status has it: another one keeps drivers back until checks are made again")
	for name, change := range map[string]func(*v1alpha1.VDOConfigSpec, *preflight.Location){
		"topology": func(s *v1alpha1.VDOConfigSpec, _ *preflight.Location) {
			s.StorageProvider.TopologyCategories = []string{"zone"}
		},
		"a vCenter":       func(s *v1alpha1.VDOConfigSpec, _ *preflight.Location) { s.StorageProvider.VsphereCloudConfig = "other" },
		"where it is":     func(_ *v1alpha1.VDOConfigSpec, p *preflight.Location) { p.Where = "other:443" },
		"whether it is":   func(_ *v1alpha1.VDOConfigSpec, p *preflight.Location) { p.Verified = false },
		"excluded nodes":  func(s *v1alpha1.VDOConfigSpec, _ *preflight.Location) { s.ExcludedNodes = map[string]string{"a": "b"} },
		"what is allowed": func(s *v1alpha1.VDOConfigSpec, _ *preflight.Location) { s.Preflight = &v1alpha1.PreflightPolicy{} },
	} {
		require.NotEqual(t, same, id(change), name)
	}
	require.Equal(t, same, id(func(s *v1alpha1.VDOConfigSpec, _ *preflight.Location) {
		s.Interval.Duration, s.Suspend = time.Hour, true
	}))
}

// running is a site on which both drivers run, with what they were configured with.
func running(t *testing.T, was v1alpha1.VDOConfigSpec, vcenters map[string]string) *pass {
	t.Helper()
	g := siteOf(t, "", "cpi@1.33.1 csi@3.5.1")
	g.vcenters[vcCloud] = vcenter{where: "a vc.site:443 dc", verified: true}
	g.vcenters[vcStorage] = g.vcenters[vcCloud]
	g.facts.inventory = g.inventory.WithMemory(inventory.Memory{
		CloudProvider: was.CloudProvider, StorageProvider: was.StorageProvider, VCenters: vcenters})
	return g
}

// A replaced vCenter's place is recorded once the cloud provider's checks have passed: until then it deletes no Nodes.
func TestTheLocationOfAReplacedVCenterWaitsForTheChecks(t *testing.T) {
	was := map[string]string{"vc": "b vc.site:443 dc"}
	g := running(t, pairRequested(), was)
	g.vcenters["vc"] = vcenter{where: "a vc.site:443 dc", verified: true, replaced: true}
	r := rendering{spec: g.spec}
	r.decision.releases = []matrix.ReleaseID{{Driver: matrix.CPI, Version: mustVersion("1.33.1")}}
	g.checks.gates = preflight.Gate([]preflight.Result{blocking(matrix.CPI, false)})
	require.Equal(t, was, g.placesNow(was, r))
	g.checks.gates = nil
	require.Equal(t, "a vc.site:443 dc", g.placesNow(was, r)["vc"])
}

func TestADriverThatWouldNotStartKeepsWhatItRunsWith(t *testing.T) {
	const none, settings, location = "", "its settings", "its vCenter's place"
	with := func(d matrix.Driver, r preflight.Result) checks {
		return checks{ran: true, gates: preflight.Gate([]preflight.Result{r}), kept: nil}
	}
	for name, c := range map[string]struct {
		checks checks
		was    func(*v1alpha1.VDOConfigSpec)
		where  string
		keeps  string // of the storage driver
		frozen string
	}{
		"it is only repaired":                    {was: func(s *v1alpha1.VDOConfigSpec) { s.StorageProvider.Webhook = true }, keeps: settings, frozen: "it is being deleted"},
		"likewise, and the vCenter is another":   {where: "old.site:443 dc", keeps: location, frozen: "it is being deleted"},
		"nobody checks":                          {was: func(s *v1alpha1.VDOConfigSpec) { s.StorageProvider.TopologyCategories = []string{"zone"} }},
		"nothing else is asked for":              {checks: with(matrix.CSI, blocking(matrix.CSI, true))},
		"it would not start":                     {checks: with(matrix.CSI, blocking(matrix.CSI, true)), was: func(s *v1alpha1.VDOConfigSpec) { s.StorageProvider.TopologyCategories = []string{"zone"} }, keeps: settings},
		"it would, and a release is held":        {checks: with(matrix.CSI, blocking(matrix.CSI, false)), was: func(s *v1alpha1.VDOConfigSpec) { s.StorageProvider.TopologyCategories = []string{"zone"} }},
		"it is not known yet":                    {checks: checks{ran: true, pending: true}, was: func(s *v1alpha1.VDOConfigSpec) { s.StorageProvider.Webhook = true }, keeps: settings},
		"the other driver would not start":       {checks: with(matrix.CPI, blocking(matrix.CPI, true)), was: func(s *v1alpha1.VDOConfigSpec) { s.StorageProvider.Webhook = true }},
		"the vCenter is another one":             {checks: with(matrix.CSI, blocking(matrix.CSI, true)), where: "old.site:443 dc", keeps: location},
		"another one of the same name":           {checks: checks{ran: true, pending: true}, where: "b vc.site:443 dc", keeps: location},
		"it was not noted which one":             {checks: checks{ran: true, pending: true}, where: "vc.site:443 dc"},
		"the vCenter is another one, and passed": {checks: checks{ran: true}, where: "old.site:443 dc"},
	} {
		t.Run(name, func(t *testing.T) {
			was := pairRequested()
			if c.was != nil {
				c.was(&was)
			}
			vcenters := map[string]string{vcStorage: "a vc.site:443 dc"}
			if c.where != "" {
				vcenters[vcStorage] = c.where
			}
			g := running(t, was, vcenters)
			g.checks, g.frozen = c.checks, c.frozen
			g.keepConfiguration()
			requested := pairRequested()
			if c.keeps == settings {
				requested = was
			}
			require.Equal(t, requested.StorageProvider, g.spec.StorageProvider)
			require.Equal(t, pairRequested().CloudProvider, g.spec.CloudProvider)
			require.Equal(t, c.keeps != none, g.checks.kept[matrix.CSI])
			require.Equal(t, c.keeps == location, g.keepsConfiguration(matrix.CSI, &g.spec))
			require.Equal(t, pairRequested(), g.config.Spec, "what is asked for is not changed")

			r := rendering{spec: g.spec, decision: decision{releases: []matrix.ReleaseID{{Driver: matrix.CSI, Version: mustVersion("3.5.1")}}}}
			if c.keeps == location {
				require.Equal(t, vcenters, g.placesNow(vcenters, r), "it is remembered until it is handed on")
			} else {
				require.Equal(t, "a vc.site:443 dc", g.placesNow(vcenters, r)[vcStorage])
			}
		})
	}
}

// After a restart of the operator the status alone tells that something is kept back, and so
// that it is looked at again soon.
func TestAQuestionTellsWhatItsAnswerKeptBack(t *testing.T) {
	for action, want := range map[preflight.Action]bool{preflight.Warn: false, preflight.BlockInstall: true} {
		g := withCSI(t)
		q := g.question()
		require.False(t, q.Gated)
		at := metav1.NewTime(g.now)
		g.config.Status.Preflight = &v1alpha1.PreflightStatus{Question: q.ID, CheckedAt: &at, Results: []v1alpha1.PreflightResult{{ID: "vm-disk-uuid", Action: action.String()}}}
		require.Equal(t, want, g.question().Gated, action)
		g.config.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "now"}
		g.config.Status.Preflight.HandledReconcileAt = "before"
		q = g.question()
		require.Equal(t, []string{"now", "before"}, []string{q.Pass, q.Handled})
		g.config.Status.Preflight.Question = "another"
		require.False(t, g.question().Gated, action)
	}
}

// What the bundle lacks keeps drivers back whether or not anybody has looked at cluster and
// vCenters, and is never told as if someone had.
func TestWhatTheBundleLacksCountsWhateverElseIsKnown(t *testing.T) {
	lacks := preflight.Result{ID: "image-platform", Action: preflight.BlockInstall, Drivers: []matrix.Driver{matrix.CNI, matrix.CPI}, Found: "for other nodes"}
	passes := preflight.Result{ID: "image-platform", Found: "ok"}
	warned := preflight.Result{ID: "vm-snapshots", Action: preflight.Warn, Found: "the VM has snapshots"}
	at := metav1.Now()
	before := &v1alpha1.PreflightStatus{Question: "other", CheckedAt: &at, Passed: 7, Verdict: "Warn", Results: []v1alpha1.PreflightResult{{ID: "vm-snapshots", Action: "Warn", Found: "x"}}}
	alone := &v1alpha1.PreflightStatus{Verdict: "BlockInstall", Results: []v1alpha1.PreflightResult{{ID: "image-platform", Action: "BlockInstall"}}}
	for name, c := range map[string]struct {
		checks    checks
		found     []preflight.Result
		listed    []string // nil where there is no status
		passed    int
		condition string // status, reason
		says      string
		gated     []matrix.Driver
	}{
		"no driver of vSphere, amiss":      {checks{}, []preflight.Result{lacks}, []string{"image-platform"}, 0, "False BlockInstall", "0 checks passed; image-platform", []matrix.Driver{matrix.CNI, matrix.CPI}},
		"no driver of vSphere, well":       {checks{}, []preflight.Result{passes}, []string{}, 1, "True Succeeded", "1 checks passed", nil},
		"no driver of vSphere, no bundle":  {checks{}, nil, nil, 0, " ", "", nil},
		"nobody has answered yet, amiss":   {checks{ran: true, pending: true}, []preflight.Result{lacks}, []string{"image-platform"}, 0, "False BlockInstall", "0 checks passed; image-platform (BlockInstall): for other nodes; status.preflight says where, and what to do; it is being checked", []matrix.Driver{matrix.CNI, matrix.CPI, matrix.CSI}},
		"nobody has answered yet, well":    {checks{ran: true, pending: true}, []preflight.Result{passes}, []string{}, 1, "Unknown Progressing", "it is being checked", []matrix.Driver{matrix.CPI, matrix.CSI}},
		"it was amiss, and nobody answers": {checks{ran: true, pending: true, status: alone}, []preflight.Result{passes}, []string{}, 1, "Unknown Progressing", "it is being checked", []matrix.Driver{matrix.CPI, matrix.CSI}},
		"another question, amiss":          {checks{ran: true, pending: true, status: before}, []preflight.Result{lacks}, []string{"image-platform", "vm-snapshots"}, 7, "False BlockInstall", "it is being checked", []matrix.Driver{matrix.CNI, matrix.CPI, matrix.CSI}},
		"another question, well":           {checks{ran: true, pending: true, status: before}, []preflight.Result{passes}, []string{"vm-snapshots"}, 7, "Unknown Progressing", "it is being checked", []matrix.Driver{matrix.CPI, matrix.CSI}},
		"all was checked, warned":          {checks{ran: true, status: preflight.Status([]preflight.Result{passes, warned})}, nil, []string{"vm-snapshots"}, 1, "True Succeeded", "1 checks passed; vm-snapshots (Warn): the VM has snapshots; status.preflight says where, and what to do", nil},
		"all was checked, amiss":           {checks{ran: true, status: before}, []preflight.Result{lacks}, []string{"image-platform", "vm-snapshots"}, 7, "False BlockInstall", "7 checks passed; image-platform", []matrix.Driver{matrix.CNI, matrix.CPI}},
	} {
		t.Run(name, func(t *testing.T) {
			s := siteOf(t, "", "")
			s.checks = c.checks.with(c.found)
			if st := s.checks.status; c.listed == nil {
				require.Nil(t, st)
			} else {
				require.Equal(t, c.passed, st.Passed)
				listed := []string{}
				for _, r := range st.Results {
					listed = append(listed, r.ID)
				}
				require.Equal(t, c.listed, listed)
			}
			got := s.preflightCondition()
			require.Equal(t, c.condition, string(got.Status)+" "+got.Reason)
			require.Contains(t, got.Message, c.says)
			s.config.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "cni", Policy: "latest"}}
			gated := map[matrix.Driver]bool{}
			for _, h := range s.driverHolds() {
				gated[h.driver] = true
			}
			require.ElementsMatch(t, c.gated, slices.Collect(maps.Keys(gated)))
		})
	}
}

type questions int

func (n *questions) Look(preflight.Question) *preflight.Answer { *n++; return nil }

func TestChecksBeginOnceEachVCenterHasAnswered(t *testing.T) {
	asked := new(questions)
	p := withCSI(t)
	p.Checks = asked
	for want, waiting := range []string{"VsphereCloudConfig vc is being checked", ""} {
		p.vcenters[vcStorage] = vcenter{waiting: waiting}
		require.NoError(t, p.collectChecks(t.Context()))
		require.EqualValues(t, want, *asked)
		require.True(t, p.checks.pending)
	}
}
