package vdoctl

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/maintenance"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/help"
)

func TestHelpOfEveryCommandFitsATerminal(t *testing.T) {
	require.Greater(t, help.Fits(t, (&app{}).root()), 25)
	require.Greater(t, help.Fits(t, (&app{plugin: true}).root()), 25)
	help.Page(t, (&app{}).root(), "../../docs/reference/vdoctl.md")
}

// At its highest level the trace has what was asked of whom, and nothing that was said.
func TestTracesHaveNoSecrets(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "vmware_soap_session", Value: "canary"})
		w.Header().Set("Vmware-Api-Session-Id", "canary")
		w.Header().Set("Server", "envoy")
		_, _ = io.Copy(w, io.MultiReader(strings.NewReader("canary of "), r.Body)) // the body arrives whole
	}))
	defer server.Close()
	const login = `<?xml version="1.0"?><Envelope><Header><Security>canary</Security></Header>` +
		`<Body xmlns="x"><Login xmlns="urn:vim25"><password>canary</password></Login></Body></Envelope>`
	for _, level := range []int{0, 1, 2, 9} {
		var out bytes.Buffer
		trace := &tracing{level: level, to: &out}
		client := http.Client{Transport: trace.wrap(http.DefaultTransport)}
		address := strings.Replace(server.URL, "http://", "http://user:canary@", 1)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/sdk", strings.NewReader(login))
		require.NoError(t, err)
		req.Header.Set("SoapAction", "urn:vim25/8.0.3.0")
		req.Header.Set("Authorization", "Bearer canary")
		req.Header.Set("Cookie", "canary")
		res, err := client.Do(req)
		require.NoError(t, err)
		said, err := io.ReadAll(res.Body)
		require.NoError(t, errors.Join(err, res.Body.Close()))
		require.Equal(t, "canary of "+login, string(said))
		require.NotContains(t, out.String(), "canary")
		require.Equal(t, level > 0, strings.Contains(out.String(), "/sdk 200 OK in "), out.String())
		require.Equal(t, level > 1, strings.Contains(out.String(), "  Server: envoy\n"), out.String())
	}
}

// kubeadm reads v1beta4 from Kubernetes 1.31 on, and nodes may be of different versions meanwhile.
func TestKubeadmIsGivenAFormatThatItReads(t *testing.T) {
	for version, want := range map[string]string{
		"": "v1beta4", "v1.23.17": "v1beta3", "v1.30.4+x": "v1beta3", "v1.31.0": "v1beta4",
	} {
		nodes := []preflight.Node{{Kubelet: "v1.36.0"}, {Kubelet: version}}
		kinds := ""
		for text := range strings.SplitSeq(kubeadmConfiguration(nodes), "---\n") {
			var doc struct {
				APIVersion, Kind string
				NodeRegistration struct{ KubeletExtraArgs any }
			}
			require.NoError(t, yaml.UnmarshalStrict([]byte(text), &doc))
			require.Equal(t, "kubeadm.k8s.io/"+want, doc.APIVersion, version)
			kinds += doc.Kind + " "
			if want == "v1beta3" {
				require.Equal(t, map[string]any{"cloud-provider": "external"}, doc.NodeRegistration.KubeletExtraArgs)
			} else {
				args := []any{map[string]any{"name": "cloud-provider", "value": "external"}}
				require.Equal(t, args, doc.NodeRegistration.KubeletExtraArgs)
			}
		}
		require.Equal(t, "InitConfiguration JoinConfiguration ", kinds)
	}
	for name, text := range configurations {
		var doc map[string]any
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &doc), name)
	}
}

// Who is asked for consent knows what is done to how many VMs, where, and what cannot be undone.
func TestTheQuestionOfVMsFixSaysWhatIsDone(t *testing.T) {
	uuid, hardware := []maintenance.Fix{maintenance.DiskUUID}, []maintenance.Fix{maintenance.Hardware}
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
