package render_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// The cloud provider deletes the Nodes of VMs that it does not find.
func TestDatacentersAreNotTakenAwayUnasked(t *testing.T) {
	const vc, other = "vc1.site.example", "vc2.site.example"
	yamlOf := func(datacenters string) string {
		return "global:\n  port: 443\nvcenter:\n  tenant:\n    server: VC1.site.example\n" + datacenters
	}
	cases := map[string]struct {
		live        string
		datacenters []string
		accept      []string
		want        string
	}{
		"nothing runs":                      {"", []string{"dc1"}, nil, ""},
		"the same":                          {yamlOf("    datacenters: [dc1, /folder/dc2/]\n"), []string{"folder/dc2", "dc1"}, nil, ""},
		"one more":                          {yamlOf("    datacenters: [dc1]\n"), []string{"dc1", "dc2"}, nil, ""},
		"all of them":                       {yamlOf("    datacenters: [dc1]\n"), nil, nil, ""},
		"one less":                          {yamlOf("    datacenters: [dc1, dc2]\n"), []string{"dc1"}, nil, vc + "/dc2"},
		"one less, by INI":                  {"[Global]\nport = 443\n[VirtualCenter \"" + vc + "\"]\ndatacenters = \"dc1, dc2\" ; both\n", []string{"dc1"}, nil, vc + "/dc2"},
		"one less of those for all, by INI": {"[Global]\ndatacenters = dc1,dc2\n[VirtualCenter \"" + vc + "\"]\n", []string{"dc1"}, nil, vc + "/dc2"},
		"by INI with a server":              {"[VirtualCenter \"tenant\"]\nserver = " + vc + "\ndatacenters = dc1,dc2\n", []string{"dc1"}, nil, vc + "/dc2"},
		"by INI with a tab":                 {"[VirtualCenter\t\"[FD00::1]\"] ; [old]\n", nil, nil, "not look in fd00::1"},
		"by INI after an indented comment":  {" ; ours: all\n[VirtualCenter \"" + other + "\"]\n", nil, nil, "not look in " + other},
		"by INI without a space":            {"[ VirtualCenter\"" + other + "\" ]\n", nil, nil, "not look in " + other},
		"some of all":                       {yamlOf(""), []string{"dc1"}, nil, "not look in " + vc + " outside of dc1 any more"},
		"a vCenter less":                    {yamlOf("") + "  two:\n    server: " + other + "\n", nil, nil, "not look in " + other + " any more"},
		"accepted":                          {yamlOf("    datacenters: [dc1, dc2]\n"), []string{"dc1"}, []string{"VC1.site.example/dc2"}, ""},
		"accepted, all of it":               {yamlOf(""), []string{"dc1"}, []string{vc}, ""},
		"another accepted":                  {yamlOf("    datacenters: [dc1, dc2, dc3]\n"), []string{"dc1"}, []string{vc + "/dc2"}, "not look in " + vc + "/dc3 any more"},
		"upstream's sample":                 {"vcenter:\n  your-vcenter-name-here:\n    server: 10.0.0.1\n    datacenters: [hrwest]\n  could-be-a-tenant-label:\n    server: 1.2.3.4\n", []string{"dc1"}, nil, ""},
		"a server under a sample's name":    {"vcenter:\n  your-vcenter-name-here:\n    server: " + vc + "\n    datacenters: [dc1, dc2]\n", []string{"dc1"}, nil, vc + "/dc2"},
		"a server for all":                  {"global:\n  server: " + vc + "\n  datacenters: [dc1, dc2]\n", []string{"dc1"}, nil, vc + "/dc2"},
		"a server for all, by INI":          {"[Global]\nserver = " + vc + "\ndatacenters = dc1,dc2\n", []string{"dc1"}, nil, vc + "/dc2"},
		"a server for all beside another":   {"[Global]\nserver = " + other + "\n[VirtualCenter \"" + vc + "\"]\n", nil, nil, "not look in " + other + " any more"},
		"one server in two sections":        {"[Global]\nserver = " + strings.ToUpper(vc) + "\ndatacenters = dc1,dc2\n[VirtualCenter \"" + vc + "\"]\ndatacenters = dc1\n", []string{"dc1"}, nil, vc + "/dc2"},
		"likewise, in all of it":            {"[VirtualCenter \"tenant\"]\nserver = " + vc + "\n[VirtualCenter \"" + vc + "\"]\ndatacenters = dc1\n", []string{"dc1"}, nil, "not look in " + vc + " outside of dc1 any more"},
		"what nobody can read":              {"\x00\x01: [", []string{"dc1"}, nil, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.CSI, "3.5.1"))
			changeVCenter(in, func(v *render.VCenter) { v.Datacenters = c.datacenters })
			in.Cluster.CloudConfig = []byte(c.live)
			in.Spec.CloudProvider.AcceptNodeDeletion = c.accept
			out, err := render.Render(in)
			if c.want == "" {
				require.NoError(t, err)
				in.Cluster.CloudConfig = []byte(cloudData(t, out)[render.CPIConfigKey])
				mustRender(t, in) // what was rendered is read back: it narrows nothing
				return
			}
			require.Equal(t, fault.Refused, fault.ReasonOf(err))
			require.ErrorContains(t, err, c.want)
			require.Contains(t, fault.HintOf(err), "acceptNodeDeletion: [")
			var failed render.Failed
			require.ErrorAs(t, err, &failed)
			require.Equal(t, failed[matrix.CPI], failed[matrix.CSI], "the storage driver would not find the VMs either")
			in.Keep = map[matrix.Driver]bool{matrix.CPI: true, matrix.CSI: true}
			mustRender(t, in) // all else of both drivers goes on
		})
	}
}

// The cloud provider runs on with a configuration that someone deletes.
func TestWhatWasSearchedIsNotForgottenWithTheConfiguration(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"))
	out := mustRender(t, in)
	require.Equal(t, []string{"vc1.site.example/DC one", "vc1.site.example/folder/dc2"}, out.Cloud.Searched)
	in.Cluster.Searched = out.Cloud.Searched
	mustRender(t, in)
	changeVCenter(in, func(v *render.VCenter) { v.Datacenters = []string{"DC one"} })
	for _, live := range []string{"", "# emptied", "vcenter: {other: {server: vc9.site.example}}"} {
		in.Cluster.CloudConfig, in.Spec.CloudProvider.AcceptNodeDeletion = []byte(live), []string{"vc9.site.example"}
		must.Fail(t, must.Err(render.Render(in)), fault.Refused, "not look in vc1.site.example/folder/dc2 any more")
		in.Spec.CloudProvider.AcceptNodeDeletion = []string{"vc9.site.example", "vc1.site.example/folder/dc2"}
		require.Equal(t, []string{"vc1.site.example/DC one"}, mustRender(t, in).Cloud.Searched)
	}
	in.Cluster.CloudConfig, in.Cluster.Searched = nil, []string{"vc1.site.example"}
	in.Spec.CloudProvider.AcceptNodeDeletion = nil
	_, err := render.Render(in)
	require.ErrorContains(t, err, "not look in vc1.site.example outside of DC one any more", "all of it was searched")
	in.Keep = map[matrix.Driver]bool{matrix.CPI: true}
	require.Nil(t, mustRender(t, in).Cloud.Searched)
}

// A vCenter at another address is the same one, by its instance UUID, in the same datacenters.
func TestAVCenterAtAnotherAddressLosesNoNodes(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"))
	in.Cluster.Searched = mustRender(t, in).Cloud.Searched
	changeVCenter(in, func(v *render.VCenter) { v.Server, v.InstanceUUID = "new.site.example", "1-1" })
	for _, id := range []string{"", "2-2"} {
		in.Cluster.Servers = map[string]string{"vc1.site.example": id}
		require.ErrorContains(t, must.Err(render.Render(in)), "vc1.site.example any more")
	}
	in.Cluster.Servers = map[string]string{"vc1.site.example": "1-1"}
	mustRender(t, in)
	changeVCenter(in, func(v *render.VCenter) { v.Datacenters = []string{"DC one"} })
	require.ErrorContains(t, must.Err(render.Render(in)), "vc1.site.example/folder/dc2 any more")
}

func TestSettingsOfAnInstallationThatWouldBeLostAreNamed(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.CSI, "3.5.1"))
	require.Empty(t, mustRender(t, in).Dropped)
	in.Cluster.ExistingCloudConfig = []byte(`global:
  port: 443
  user: canary-user
  password: canary-password
  insecureFlag: true
  soapRoundtripCount: 5
vcenter:
  one: {server: vc1.site.example, thumbprint: "canary", datacenters: [a]}
labels: {region: r, zone: z}
loadBalancer: {ipPoolName: canary}
`)
	in.Cluster.ExistingStorageConfig = []byte(`[Global]
cluster-id = "x"
query-limit = "500"
csi-fetch-preferred-datastores-intervalinmin = 9 # canary
insecure-flag = "true"
; password = canary
[VirtualCenter "vc1.site.example"]
user = "canary"
password = "ca\"n#ary"
port = "443"
datacenters = "DC one"
migration-datastore-url = "ds:///canary/"
[Snapshot]
global-max-snapshots-per-block-volume = 9
`)
	in.Cluster.ExistingFeatureStates = map[string][]byte{"trigger-csi-fullsync": []byte("true"), "pv-to-backingdiskobjectid-mapping": []byte("false"), "csi-migration": []byte("true")}
	want := []string{
		`cloud provider's configuration: [global] soapRoundtripCount`,
		`cloud provider's configuration: [labels] region`,
		`cloud provider's configuration: [labels] zone`,
		`cloud provider's configuration: [loadbalancer] ipPoolName`,
		`cloud provider's configuration: [vcenter "one"] thumbprint`,
		`storage driver's configuration: [global] csi-fetch-preferred-datastores-intervalinmin`,
		`storage driver's configuration: [global] query-limit`,
		`storage driver's configuration: [snapshot] global-max-snapshots-per-block-volume`,
		`storage driver's configuration: [vcenter "vc1.site.example"] migration-datastore-url`,
		`storage driver's feature state trigger-csi-fullsync: true becomes false`,
	}
	require.Equal(t, want, mustRender(t, in).Dropped)
	require.NotContains(t, strings.Join(want, ""), "canary")

	in.Spec.CloudProvider.Topology = &v1alpha1.Topology{Region: "r", Zone: "z"}
	in.Spec.StorageProvider.QueryLimit, in.Spec.StorageProvider.Snapshots = 500, &v1alpha1.SnapshotLimits{MaxPerVolume: 9}
	in.Spec.StorageProvider.FeatureStates = map[string]bool{"trigger-csi-fullsync": true}
	left := strings.Join(mustRender(t, in).Dropped, "\n")
	for _, kept := range []string{"region", "query-limit", "snapshots", "trigger"} {
		require.NotContains(t, left, kept)
	}
	in.Keep = map[matrix.Driver]bool{matrix.CPI: true, matrix.CSI: true}
	require.Empty(t, mustRender(t, in).Dropped, "what is kept loses nothing")
}

func TestAConfigurationThatNamesNoVCenterIsKnown(t *testing.T) {
	for config, names := range map[string]bool{
		"":                                      false,
		"\x00\x01: [":                           false,
		"global:\n  port: 443\n":                false,
		"[Global]\nserver = vc1.site.example\n": true,
		"[VirtualCenter \"vc1.site.example\"]":  true,
	} {
		require.Equal(t, names, render.NamesVCenters([]byte(config)), config)
	}
}

// The provider reads texts as they are written, and a key without a value as one that is not there. It ignores the
// unknown.
func TestYAMLIsReadAsTheCloudProviderReadsIt(t *testing.T) {
	conf := []byte("note: ours\nglobal: {password: 123456789012}\nvcenter:\n" +
		"  a: {server: a.example, user: u, password: 01234567}\n  c: {server: c, password: 12.50}\n" +
		"  d: {password: 0x1F}\n" +
		"  vc.example.com: {server: , datacenters: , password: yes}\n  b: {server: b, datacenters: [20240101, 007]}\n")
	require.Equal(t, []string{"a.example", "b/007", "b/20240101", "c", "d", "vc.example.com"}, render.Places(conf))
	want := []string{"123456789012", "01234567", "12.50", "0x1F", "yes"}
	require.Equal(t, want, render.Passwords(map[string][]byte{render.CPIConfigKey: conf}))
	require.Equal(t, []string{"second", "from a file"}, render.Passwords(map[string][]byte{
		"vc.example.com.password": []byte("from a file\n"), "password_2": []byte("second"),
		"vc.example.com.username": []byte("u"),
	}), "the provider ignores a line's end")
	conf = []byte("[VirtualCenter \"a\"]\nvc-session-manager-token = \"login\"\n")
	require.Equal(t, []string{"login"}, render.Passwords(map[string][]byte{render.CSIConfigKey: conf}))
}

// Nodes that were excluded may still be there.
func TestTheCloudProviderDeletesNodesAgainWhereThatIsAccepted(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"))
	const skips = `{"name":"SKIP_NODE_DELETION","value":"true"}`
	keeps := func(out *render.Rendered) bool {
		require.Equal(t, out.Cloud.KeepsNodes, strings.Contains(at(t, out, cloudEnv), skips))
		return out.Cloud.KeepsNodes
	}
	require.False(t, keeps(mustRender(t, in)))
	in.Cluster.AnotherVCenter = true
	out := mustRender(t, in)
	require.Contains(t, at(t, out, cloudEnv), skips)
	require.False(t, out.Cloud.KeepsNodes, "it deletes them again once the vCenter is accepted")
	in.Spec.Patches = []v1alpha1.Patch{patchOf(matrix.CPI, "DaemonSet", "vsphere-cloud-controller-manager",
		`spec: {template: {spec: {containers: [{name: vsphere-cloud-controller-manager, env: [`+
			`{name: SKIP_NODE_DELETION, value: "false"}]}]}}}`)}
	require.Equal(t, 1, strings.Count(at(t, mustRender(t, in), cloudEnv), "SKIP_NODE_DELETION"), "a list keyed by name")
	in.Cluster.AnotherVCenter, in.Spec.Patches = false, nil
	in.Spec.ExcludedNodes = map[string]string{"site/metal": "yes", "cloud": "other"}
	require.True(t, keeps(mustRender(t, in)))
	in.Cluster.KeepsNodes = true
	in.Spec.ExcludedNodes = map[string]string{"cloud": "other"}
	require.True(t, keeps(mustRender(t, in)), "fewer labels delete no Nodes")
	in.Spec.ExcludedNodes = nil
	must.Fail(t, must.Err(render.Render(in)), fault.Refused,
		"would delete the Nodes that are not on vSphere", "acceptNodeDeletion: [spec.excludedNodes]")
	in.Cluster.UnsureOfNodes = true
	require.True(t, keeps(mustRender(t, in)), "it is made again first, and deletes none")
	in.Cluster.UnsureOfNodes = false
	in.Keep = map[matrix.Driver]bool{matrix.CPI: true}
	require.True(t, keeps(mustRender(t, in)), "all else of the cloud provider goes on, and deletes none")
	in.Keep, in.Spec.CloudProvider.AcceptNodeDeletion = nil, []string{"spec.excludedNodes"}
	require.False(t, keeps(mustRender(t, in)))
}
