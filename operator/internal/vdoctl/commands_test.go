package vdoctl

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/maintenance"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/help"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

func TestHelpOfEveryCommandFitsATerminal(t *testing.T) {
	require.Greater(t, help.Fits(t, (&app{}).root()), 25)
	require.Greater(t, help.Fits(t, (&app{plugin: true}).root()), 25)
	help.Page(t, (&app{}).root(), "../../docs/reference/vdoctl.md")
}

// At its highest level the trace has what was asked of whom, and nothing that was said.
func TestTracesHaveNoSecrets(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		says := http.Header{"Set-Cookie": {"s=canary"}, "Vmware-Api-Session-Id": {"canary"}, "Server": {"envoy"}}
		maps.Copy(w.Header(), says)
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	const login = `<Login xmlns="urn:vim25"><password>canary</password></Login>`
	for _, level := range []int{0, 1, 2, 9} {
		var out bytes.Buffer
		trace := &tracing{level: level, to: &out}
		client := http.Client{Transport: trace.wrap(http.DefaultTransport)}
		address := strings.Replace(server.URL, "http://", "http://user:canary@", 1) + "/sdk"
		req := must.Have(http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(login)))(t)
		req.Header = http.Header{"Authorization": {"Bearer canary"}, "Cookie": {"canary"}}
		res := must.Have(client.Do(req))(t)
		require.Equal(t, login, string(must.Have(io.ReadAll(res.Body))(t)), "the body arrives whole")
		require.NoError(t, res.Body.Close())
		require.NotContains(t, out.String(), "canary")
		require.Equal(t, level > 0, strings.Contains(out.String(), "/sdk 200 OK in "), out.String())
		require.Equal(t, level > 1, strings.Contains(out.String(), "  Server: envoy\n"), out.String())
	}
}

// kubeadm reads v1beta4 from Kubernetes 1.31 on, and nodes may be of different versions meanwhile.
func TestKubeadmIsGivenAFormatThatItReads(t *testing.T) {
	args := map[string]any{"v1beta3": map[string]any{"cloud-provider": "external"},
		"v1beta4": []any{map[string]any{"name": "cloud-provider", "value": "external"}}}
	for version, api := range map[string]string{
		"": "v1beta4", "v1.23.17": "v1beta3", "v1.30.4+x": "v1beta3", "v1.31.0": "v1beta4",
	} {
		nodes := []preflight.Node{{Kubelet: "v1.36.0"}, {Kubelet: version}}
		texts := strings.Split(kubeletOf("kubeadm", nodes), "---\n")
		for i, kind := range []string{"InitConfiguration", "JoinConfiguration"} {
			var doc map[string]any
			require.NoError(t, yaml.UnmarshalStrict([]byte(texts[i]), &doc))
			want := map[string]any{"kubeletExtraArgs": args[api]}
			want = map[string]any{"apiVersion": "kubeadm.k8s.io/" + api, "kind": kind, "nodeRegistration": want}
			require.Equal(t, want, doc, version)
		}
	}
	for _, name := range distributions {
		for _, text := range strings.Split(kubeletOf(name, nil), "---\n") {
			var doc map[string]any
			require.NoError(t, yaml.UnmarshalStrict([]byte(text), &doc), name)
			require.NotEmpty(t, doc, name)
		}
	}
}

// Who is asked for consent knows what is done to how many VMs, where, and what cannot be undone.
func TestTheQuestionOfVMsFixSaysWhatIsDone(t *testing.T) {
	uuid, hardware := []preflight.Fix{preflight.DiskUUID}, []preflight.Fix{preflight.Hardware}
	for want, list := range map[string][]maintenance.Machine{
		"Change 1 VM, one after another, and shut down those that are on, of vCenter west": {{Node: "a", VCenter: "west", Off: uuid}},
		"1 hardware upgrade cannot be undone. Change 2 VMs, one after another, and shut down those that are on, of vCenter east, west": {
			{Path: "a", On: true, VCenter: "west", Off: hardware}, {Path: "b", On: true, VCenter: "east", Off: uuid}},
	} {
		require.Equal(t, want, fixQuestion(list))
	}
}

// kubectl takes the names of objects.
func TestNamesOfObjects(t *testing.T) {
	done := []changedObject{{Object: "Namespace vdo"}, {Object: "ConfigMap vdo/ca"}}
	status := statusReport{VDOConfig: "vdo", Bundles: []bundleStatus{{Name: "drivers"}},
		VCenters: []vcenterStatus{{Name: "east"}}}
	status.Operator.Installed = true
	list := revisionList{Revisions: []v1alpha1.RevisionStatus{{Name: "r1"}},
		Candidate: &candidate{CandidateStatus: v1alpha1.CandidateStatus{Name: "r2"}}}
	for want, r := range map[string][]named{
		"namespace/vdo\nconfigmap/ca\n": {deployment{Objects: done}, configurationReport{Changes: done}},
		"deployment/vdo-operator\ndriverbundle/drivers\nvspherecloudconfig/east\nvdoconfig/vdo\n": {status},
		"revision/r1\nrevision/r2\n": {list},
	} {
		for _, x := range r {
			var out bytes.Buffer
			require.NoError(t, (&app{out: &out, format: nameFormat}).print(x, nil))
			require.Equal(t, want, out.String())
		}
	}
}

func TestPasswordsOfTheEnvironmentAreHidden(t *testing.T) {
	a := &app{getenv: func(name string) (string, bool) { return "of " + name, true }}
	require.Equal(t, []string{"of VDO_VCENTER_PASSWORD", "of VDO_ACCOUNT_PASSWORD"}, a.passwords())
}

func TestScriptsStayWhole(t *testing.T) {
	plans := []usersPlan{{VCenter: "east", Server: "vc.site"}}
	role := privileges.PlannedRole{State: privileges.Create}
	role.Privileges = slices.Repeat([]string{"A.B"}, 30)
	plans[0].Roles = []privileges.PlannedRole{role}
	evil := privileges.PlannedPermission{Path: "/dc/vm/a\nrm -r ~", ID: "VirtualMachine-vm-1", State: privileges.Create}
	plans[0].Permissions = []privileges.PlannedPermission{evil}
	for name, script := range map[string]func(*lines, []usersPlan){"govc": govcScript, "PowerCLI": powercliScript} {
		narrow, pipe := &columns.Screen{Wide: 40}, &bytes.Buffer{}
		require.NoError(t, written(narrow, func(l *lines) { script(l, plans) }))
		require.NoError(t, written(pipe, func(l *lines) { script(l, plans) }))
		require.Equal(t, pipe.String(), narrow.String(), name)
		require.NotContains(t, pipe.String(), "\nrm", "a name does not end its comment")
	}
}

// what is not asked for stays: upgrades are manual by the earlier operator's ConfigMap.
func TestConfigureKeepsTheModeOfTheEarlierOperator(t *testing.T) {
	_, c := installation(t)
	o, d := answering(t, c)
	o.username, o.password, o.bundle = "u", "new", "registry.site/vdo:1"
	require.NoError(t, o.take(d))
	require.Empty(t, d.config.Spec.Upgrade, "spec.upgrade was not set, and no one has asked for it")
}

func TestConsentsToOlderReleasesDoNotAddUp(t *testing.T) {
	config := &v1alpha1.VDOConfig{}
	cpi := v1alpha1.DriverStatus{Driver: "cpi", Version: "1.99.0"}
	config.Status.Drivers = []v1alpha1.DriverStatus{cpi, {Driver: "csi", Version: "3.99.0"}}
	for i := range 5 {
		to := fmt.Sprintf("cpi@1.3%d.0, csi@3.%d.0", i, i)
		pin(config, v1alpha1.RevisionStatus{Releases: to}, "r-1", "me")
	}
	require.LessOrEqual(t, len(config.Spec.UpgradePolicy.AllowDowngrade), 8)
	pin(config, v1alpha1.RevisionStatus{Releases: "csi@3.1.0"}, "r-2", "me")
	pinned := []string{"cpi@1.34.0", "csi@3.1.0"}
	require.Equal(t, pinned, config.Spec.UpgradePolicy.AllowDowngrade)
	config.Spec.UpgradePolicy.AllowDowngrade = []string{"cpi@1.30.0"}
	require.Equal(t, []string{"cpi@1.30.0", "csi@3.0.0"}, downgrades(config, "cpi@1.30.0, csi@3.0.0"))
	require.Nil(t, downgrades(config, "cpi@1.30.0"))
}

// a revision that failed and stays, since nothing can be gone back to, is tried once more, approved before or not.
func TestAFailedRevisionThatStaysIsApprovedAgain(t *testing.T) {
	config := &v1alpha1.VDOConfig{}
	config.Spec.Upgrade = v1alpha1.UpgradeManual
	config.Status.Revisions = []v1alpha1.RevisionStatus{
		{Name: "r-2", Group: "csi", Current: true, Bundle: "b", Releases: "csi@3.5.1", Outcome: "Failed"},
	}
	config.Status.Drivers = []v1alpha1.DriverStatus{
		{Driver: "cpi", Version: "1.33.1"}, {Driver: "csi", Version: "3.3.1"},
	}
	_, err := revisionToGoBackTo(config, "", "")
	require.ErrorContains(t, err, "there is no earlier healthy revision")
	whole := revision.Revision{Bundle: "b", Releases: []string{"cpi@1.33.1", "csi@3.5.1"}}.Name()
	const earlier = "r-2 2026-08-01T12:00:00Z"
	for approved, want := range map[string]string{"": "r-2", "r-1": "r-2", "r-2": "r-2", whole: whole} {
		config.Annotations, config.Spec.UpgradePolicy = map[string]string{v1alpha1.AnnotationRetry: earlier}, nil
		if approved != "" {
			approval := &v1alpha1.UpgradeApproval{Revision: approved, By: "another"}
			config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{Approval: approval}
		}
		require.NoError(t, (&approveOptions{app: &app{}}).consentTo(config, "r-2", "me"))
		require.Contains(t, config.Annotations[v1alpha1.AnnotationRetry], "r-2 ")
		require.NotEqual(t, earlier, config.Annotations[v1alpha1.AnnotationRetry], "it is tried once for each value")
		require.Equal(t, &v1alpha1.UpgradeApproval{Revision: want, By: "me"}, config.Spec.UpgradePolicy.Approval)
	}

	config.Annotations = nil // the same while another group waits for an approval
	waits := v1alpha1.CandidateStatus{Name: "r-3", Releases: "cpi@1.33.1, csi@3.5.1", Reason: "NotApproved"}
	config.Status.Candidate = &waits
	require.NoError(t, (&approveOptions{app: &app{}}).consentTo(config, "r-3", "me"))
	require.NotEmpty(t, config.Annotations[v1alpha1.AnnotationRetry], "the failed csi of r-3 is not tried again")
	config.Annotations, config.Status.Revisions, config.Status.Candidate.Reason = nil, nil, "Failed"
	require.NoError(t, (&approveOptions{app: &app{}}).consentTo(config, "r-3", "me"))
	require.NotEmpty(t, config.Annotations[v1alpha1.AnnotationRetry], "it failed, and what ran before runs")
}

func TestADowngradeNeedsItsOwnConsent(t *testing.T) {
	config, o := &v1alpha1.VDOConfig{}, &approveOptions{app: &app{}}
	config.Status.Drivers = []v1alpha1.DriverStatus{{Driver: "csi", Version: "3.5.1"}}
	config.Status.Candidate = &v1alpha1.CandidateStatus{Name: "r-1", Releases: "csi@3.3.1", Reason: "DowngradeRefused"}
	require.ErrorContains(t, o.consentTo(config, "r-1", "me"), "csi@3.3.1: older than what runs")
	require.Nil(t, config.Spec.UpgradePolicy)
	o.downgrade = true
	require.NoError(t, o.consentTo(config, "r-1", "me"))
	require.Equal(t, []string{"csi@3.3.1"}, config.Spec.UpgradePolicy.AllowDowngrade)

	o.downgrade, config.Status.Candidate.Name, config.Status.Candidate.Reason = false, "r-2", "WindowClosed"
	before := config.DeepCopy()
	require.NoError(t, o.consentTo(config, "r-2", "me"), "the spec allows it")
	require.Equal(t, before, config)

	waits := v1alpha1.CandidateStatus{Name: "r-3", Releases: "csi@3.5.1", Reason: "NotApproved"}
	config.Status.Candidate = &waits
	require.NoError(t, o.consentTo(config, "r-3", "me"))
	require.Empty(t, config.Spec.UpgradePolicy.AllowDowngrade, "the consent was for one downgrade")
}

// the administrator's password, which `users` and `check` read from VDO_VCENTER_PASSWORD, is not the drivers'.
func TestThePasswordOfTheSecretIsKept(t *testing.T) {
	_, c := installation(t)
	var s corev1.Secret
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "vc"}, &s))
	s.Data = map[string][]byte{"username": []byte("drivers@vsphere.local"), "password": []byte("drivers-password")}
	require.NoError(t, c.Update(t.Context(), &s))
	env := func(name string) (string, bool) { return "administrators-password", name == passwordEnv }
	o, d := answering(t, c)
	o.getenv = env
	require.Equal(t, "drivers@vsphere.local", o.username, "of the Secret: no flag names an account")
	require.NoError(t, o.readPassword(t.Context(), d, false))
	require.Equal(t, "drivers-password", o.password)

	s.Annotations = map[string]string{credentials.EndsAnnotation: "drivers@vsphere.local 2027-01-14"}
	require.NoError(t, c.Update(t.Context(), &s))
	site := must.Have(clusterSite(t.Context(), c, operatorNamespace))(t)
	site.app = o.app
	st := &d.vcenter.Status
	st.CredentialsVersion = must.Have(credentials.Read(t.Context(), c, d.vcenter))(t).Version
	st.ObservedGeneration = d.vcenter.Generation
	st.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: string(fault.Unauthorized)}}
	site.vcenters = []configured{{config: d.vcenter}}
	refused := site.ask(t.Context(), nil)[0]
	require.ErrorContains(t, refused.Err, "vdoctl does not try it again")
	require.Equal(t, "2027-01-14", refused.Ends.Format(time.DateOnly))
	s.Annotations = map[string]string{credentials.EndsAnnotation: "another@vsphere.local 2027-01-14"}
	require.NoError(t, c.Update(t.Context(), &s))
	at := must.Have(site.target(t.Context(), configured{config: d.vcenter}))(t)
	require.Zero(t, at.Ends, "the account was replaced by hand")

	d.vcenter.Spec.VcIP, o.server = "vc.site", "vc.other.site"
	o.moved(d)
	require.Empty(t, d.password, "another vCenter does not get it")
}

// volumes keep a driver that is no longer requested: its accounts keep their roles, and nothing else is checked for it.
func TestADriverThatStillRunsNeedsItsAccounts(t *testing.T) {
	cloud := &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"east"}}
	storage := &v1alpha1.StorageProvider{VsphereCloudConfig: "west"}
	off := []v1alpha1.DriverPolicy{{Driver: "csi", Policy: "disabled"}}
	for name, c := range map[string]struct {
		spec v1alpha1.VDOConfigSpec
		runs string
		want []preflight.Use
	}{
		"never installed": {v1alpha1.VDOConfigSpec{CloudProvider: cloud}, "cpi", []preflight.Use{{Name: "east", CPI: true}}},
		"taken out": {v1alpha1.VDOConfigSpec{CloudProvider: cloud}, "cpi csi",
			[]preflight.Use{{Name: "east", CPI: true, CSI: true}, {Name: "west", CSI: true}}},
		"disabled":                {v1alpha1.VDOConfigSpec{StorageProvider: storage, Drivers: off}, "csi", []preflight.Use{{Name: "west", CSI: true}}},
		"disabled, not installed": {v1alpha1.VDOConfigSpec{StorageProvider: storage, Drivers: off}, "", []preflight.Use{{Name: "west"}}},
		"the cloud provider":      {v1alpha1.VDOConfigSpec{}, "cpi", []preflight.Use{{Name: "east", CPI: true}, {Name: "west", CPI: true}}},
	} {
		config := &v1alpha1.VDOConfig{Spec: c.spec}
		for _, d := range strings.Fields(c.runs) {
			config.Status.Drivers = append(config.Status.Drivers, v1alpha1.DriverStatus{Driver: d})
		}
		s := siteOf(config, []v1alpha1.VsphereCloudConfig{
			{ObjectMeta: metaOf("", "west")}, {ObjectMeta: metaOf("", "east")},
		}, nil)
		var uses []preflight.Use
		for _, v := range s.vcenters {
			uses = append(uses, v.Use)
			require.Equal(t, v.CSI, s.wants.FeaturesAt(v.Use, &preflight.Cluster{}).Block, name)
		}
		require.Equal(t, c.want, uses, name)
		require.False(t, s.wants.CSI, name)
	}
}

// a mirror whose path has the name of the operator's usual namespace.
func TestAnotherNamespaceLeavesImagesAlone(t *testing.T) {
	a := &app{}
	a.cluster.namespace = "vdo"
	const text = "metadata: {namespace: vmware-system-vdo}\nspec:\n  image: registry.site/vmware-system-vdo/a\n"
	all := must.Have(a.readManifest([]byte(text)))(t)
	want := map[string]any{"metadata": map[string]any{"namespace": "vdo"},
		"spec": map[string]any{"image": "registry.site/vmware-system-vdo/a"}}
	require.Equal(t, want, all[0].(*unstructured.Unstructured).Object) //nolint:forcetypeassert // it is
}

// Nodes read user and password alone, and a token in their place ends within hours.
func TestALoginThatNodesCannotUseIsNotStored(t *testing.T) {
	for login, says := range map[string]string{
		`"auth":"cm9ib3Q6cHc="`:                 `{"auths":{"mirror.site":{"auth":"cm9ib3Q6cHc="}}}<nil>`,
		`"auth":"QVdTOnRva2Vu"`:                 "store the login of AWS from ",
		`"auth":"QTo=","identitytoken":"token"`: "nodes cannot use",
		`"registrytoken":"token"`:               "the login of a token from ",
	} {
		o := &deployOptions{app: &app{now: time.Now, getenv: os.LookupEnv}}
		o.authFile, o.to.Repository = filepath.Join(t.TempDir(), "auth.json"), "mirror.site/vdo/drivers"
		require.NoError(t, os.WriteFile(o.authFile, []byte(`{"auths":{"mirror.site":{`+login+`}}}`), 0o600))
		got, err := o.login(t.Context())
		require.Contains(t, fmt.Sprint(string(got), err), says)
	}
}

func TestAnObjectWithoutAFolderStays(t *testing.T) {
	all := []privileges.Object{{Kind: privileges.Ancestor, Path: "Folder:group-hidden"},
		{Kind: privileges.VM, Path: "VirtualMachine:vm-1"},
		{Kind: privileges.Root, Path: "/"}, {Kind: privileges.VM, Path: "/of-a-vapp"}}
	require.Equal(t, all, inFolders(all))
	k8s := privileges.Object{Kind: privileges.Ancestor, Path: "/dc/vm/k8s", ID: "Folder-k8s"}
	got := inFolders([]privileges.Object{k8s, {Kind: privileges.VM, Path: "/dc/vm/k8s/node"}})
	require.Equal(t, []privileges.Object{k8s, {Kind: privileges.VM, Path: k8s.Path, ID: k8s.ID}}, got)
}

func TestARollbackApprovesADriverThatIsLeftToOthers(t *testing.T) {
	config := &v1alpha1.VDOConfig{Status: v1alpha1.VDOConfigStatus{Drivers: []v1alpha1.DriverStatus{
		{Driver: "csi", Version: "3.7.3"}, {Driver: "snapshot-controller", Wanted: "8.2.0"},
	}}}
	want := revision.Revision{Bundle: "b", Releases: []string{"csi@3.6.3", "snapshot-controller@8.2.0"}}
	require.Equal(t, want.Name(), approvalOf(config, v1alpha1.RevisionStatus{Bundle: "b", Releases: "csi@3.6.3"}))
}
