package render_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/quick"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"gopkg.in/gcfg.v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// csiConfig is what the storage driver reads, by its own library, strictly: a key
// that is not here is an error.
type csiConfig struct {
	Global struct {
		ClusterID           string `gcfg:"cluster-id"`
		ClusterDistribution string `gcfg:"cluster-distribution"`
		CAFile              string `gcfg:"ca-file"`
		Thumbprint          string `gcfg:"thumbprint"`
		QueryLimit          int    `gcfg:"query-limit"`
		ListVolumeThreshold int    `gcfg:"list-volume-threshold"`
	}
	Snapshot struct {
		Global int `gcfg:"global-max-snapshots-per-block-volume"`
		VSAN   int `gcfg:"granular-max-snapshots-per-block-volume-vsan"`
		VVOL   int `gcfg:"granular-max-snapshots-per-block-volume-vvol"`
	}
	VirtualCenter map[string]*struct {
		User, Password, Datacenters, Port, Thumbprint string
		InsecureFlag                                  bool   `gcfg:"insecure-flag"`
		CAFile                                        string `gcfg:"ca-file"`
		TargetvSANFileShareDatastoreURLs              string `gcfg:"targetvSANFileShareDatastoreURLs"`
	}
	NetPermissions map[string]*struct {
		Ips, Permissions string
		RootSquash       bool
	}
	Labels struct {
		TopologyCategories string `gcfg:"topology-categories"`
	}
}

func readCSI(t testing.TB, out *render.Rendered) csiConfig {
	var c csiConfig
	require.NoError(t, gcfg.ReadStringInto(&c, secretData(t, out, render.CSISecret)[render.CSIConfigKey]))
	return c
}

// cloudData is the cloud provider's ConfigMap.
func cloudData(t testing.TB, out *render.Rendered) map[string]string {
	t.Helper()
	return nested(unstructured.NestedStringMap(object(t, out, "ConfigMap "+render.CPIConfigMap).Object, "data"))(t)
}

func authority(t testing.TB) []byte {
	c := must.Have(webhookcert.Issue(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))(t)
	return c.CA
}

const sha1Print = "AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD"

func twoVCenters(in *render.Input, second render.VCenter) {
	in.VCenters["vc-two"] = second
	in.Spec.CloudProvider.VsphereCloudConfigs = []string{"vc-one", "vc-two"}
	in.Spec.StorageProvider.VsphereCloudConfigs = []string{"vc-two"}
	in.Spec.StorageProvider.TopologyCategories = []string{"k8s-region", "k8s-zone"}
}

func second() render.VCenter {
	return render.VCenter{
		Server: "[fd00::2]", Port: 8443, Insecure: true,
		Credentials: render.Credentials{Username: "csi@corp.example\n", Password: "second\n"},
	}
}

func TestTheCloudProvidersConfigurationIsWhole(t *testing.T) {
	everyRelease(t, []matrix.Driver{matrix.CPI}, func(t *testing.T, id matrix.ReleaseID) {
		in := input(t, id)
		twoVCenters(&in, second())
		ca := authority(t)
		changeVCenter(in, func(v *render.VCenter) { v.Thumbprint, v.CA = strings.ToLower(sha1Print), ca })
		in.Spec.CloudProvider.Topology = &v1alpha1.Topology{Zone: "k8s-zone", Region: "yes"}
		in.Spec.CloudProvider.IPFamilies = []string{"ipv6", "ipv4"}
		in.Spec.CloudProvider.NodeAddresses = &v1alpha1.NodeAddresses{
			InternalSubnets: []string{"10.0.0.0/16", "fd00::/64"}, ExternalSubnets: []string{"192.0.2.0/24"},
			ExcludeInternalSubnets: []string{"10.0.0.5/32", "fe80::/10"}, ExcludeExternalSubnets: []string{"192.0.2.9/32"},
			InternalNetwork: "VM Network: a", ExternalNetwork: "#public",
		}
		out := mustRender(t, in)
		data := cloudData(t, out)
		require.JSONEq(t, `{
			"global": {"port": 443, "secretName": "vsphere-cloud-secret", "secretNamespace": "kube-system"},
			"labels": {"region": "yes", "zone": "k8s-zone"},
			"nodes": {
				"internalNetworkSubnetCidr": "10.0.0.0/16,fd00::/64", "externalNetworkSubnetCidr": "192.0.2.0/24",
				"excludeInternalNetworkSubnetCidr": "10.0.0.5/32,fe80::/10", "excludeExternalNetworkSubnetCidr": "192.0.2.9/32",
				"internalVmNetworkName": "VM Network: a", "externalVmNetworkName": "#public"},
			"vcenter": {
				"vc-one": {"server": "vc1.site.example", "port": 443, "insecureFlag": false, "datacenters": ["DC one", "folder/dc2"],
					"thumbprint": "`+sha1Print+`", "caFile": "/etc/cloud/vc-one.ca.crt", "ipFamily": ["ipv6", "ipv4"]},
				"vc-two": {"server": "fd00::2", "port": 8443, "insecureFlag": true, "ipFamily": ["ipv6", "ipv4"]}}}`,
			string(must.Have(yaml.YAMLToJSON([]byte(data[render.CPIConfigKey])))(t)))
		require.Equal(t, string(ca), data["vc-one.ca.crt"])
		require.Equal(t, map[string]string{
			"vc1.site.example.username": "vdo@vsphere.local", "vc1.site.example.password": password,
			"server_2": "fd00::2", "username_2": "csi@corp.example", "password_2": "second",
		}, secretData(t, out, render.CPISecret))
		looks{ // the whole ConfigMap is mounted where the configuration says that its files are
			{cloud + " spec", `"mountPath":"/etc/cloud"`}, {cloudEnv, `{"name":"ENABLE_ALPHA_DUAL_STACK","value":"true"}`},
			{"Secret " + render.CPISecret + " apply", "Replace"}, {"ConfigMap " + render.CPIConfigMap + " apply", "Replace"},
		}.require(t, out)

		in.Spec.CloudProvider.IPFamilies = nil
		for _, none := range []*v1alpha1.NodeAddresses{nil, {InternalSubnets: []string{}}} {
			in.Spec.CloudProvider.NodeAddresses = none
			out = mustRender(t, in)
			require.NotRegexp(t, "nodes|ipFamily", cloudData(t, out)[render.CPIConfigKey])
			require.NotContains(t, at(t, out, cloudEnv), "ENABLE_ALPHA_DUAL_STACK")
		}
	})
}

func TestStorageDriverConfigurationReadsBack(t *testing.T) {
	everyRelease(t, []matrix.Driver{matrix.CSI}, func(t *testing.T, id matrix.ReleaseID) {
		v := id.Version.String()
		in := input(t, id)
		ca := authority(t)
		changeVCenter(in, func(v *render.VCenter) { v.Port, v.CA, v.Thumbprint = 8443, ca, sha1Print })
		p := in.Spec.StorageProvider
		p.ClusterDistribution = `my "own" distribution; #1`
		p.TopologyCategories = []string{"k8s-region", "k8s-zone"}
		p.FileVolumes = &v1alpha1.FileVolumes{
			VsanDataStoreURLs: []string{"ds:///vmfs/volumes/vsan:1/", "ds:///vmfs/volumes/vsan:2/"},
			NetPermissions:    []v1alpha1.NetPermission{{IPs: "10.0.0.0/24", Permissions: "READ_ONLY", RootSquash: true}, {}},
			VsanClusters:      []v1alpha1.FileShareClusters{{Clusters: []string{"domain-c8", "domain-c9"}}},
		}
		p.QueryLimit, p.ListVolumeThreshold = 500, 7
		p.Snapshots = &v1alpha1.SnapshotLimits{MaxPerVolume: 5, MaxPerVolumeVSAN: 9, MaxPerVolumeVVOL: 2}
		out := mustRender(t, in)
		require.Contains(t, strings.Join(out.Notes, "\n"), "fileVolumes.vsanClusters has no effect")
		c := readCSI(t, out)
		vc := c.VirtualCenter["vc1.site.example"]
		require.NotNil(t, vc)
		require.Equal(t, "vdo@vsphere.local", vc.User)
		require.Equal(t, password, vc.Password)
		require.Equal(t, "8443", vc.Port)
		require.False(t, vc.InsecureFlag)
		require.Equal(t, "DC one,folder/dc2", vc.Datacenters)
		require.Equal(t, p.ClusterDistribution, c.Global.ClusterDistribution)
		require.Equal(t, "k8s-region,k8s-zone", c.Labels.TopologyCategories)
		require.Equal(t, "10.0.0.0/24", c.NetPermissions["1"].Ips)
		require.Equal(t, "READ_ONLY", c.NetPermissions["1"].Permissions)
		require.True(t, c.NetPermissions["1"].RootSquash)
		require.Equal(t, "*", c.NetPermissions["2"].Ips)
		require.Equal(t, [5]int{500, 7, 5, 9, 2},
			[5]int{c.Global.QueryLimit, c.Global.ListVolumeThreshold, c.Snapshot.Global, c.Snapshot.VSAN, c.Snapshot.VVOL})
		plain := secretData(t, mustRender(t, input(t, id)), render.CSISecret)[render.CSIConfigKey]
		for _, key := range []string{"Snapshot", "query-limit", "list-volume-threshold", "FileShare"} {
			require.NotContains(t, plain, key)
		}
		require.Equal(t, string(ca), secretData(t, out, render.CSISecret)["vc-one.ca.crt"])

		perVCenter, old := v >= "3.3", v < "3.2"
		const file = "/etc/cloud/vc-one.ca.crt"
		if perVCenter {
			require.Equal(t, [4]string{file, sha1Print, "", ""}, [4]string{vc.CAFile, vc.Thumbprint, c.Global.CAFile, c.Global.Thumbprint})
		} else {
			require.Equal(t, [4]string{"", "", file, sha1Print}, [4]string{vc.CAFile, vc.Thumbprint, c.Global.CAFile, c.Global.Thumbprint})
		}
		notes := strings.Join(out.Notes, "\n")
		if old {
			require.Equal(t, "ds:///vmfs/volumes/vsan:1/,ds:///vmfs/volumes/vsan:2/", vc.TargetvSANFileShareDatastoreURLs)
			require.NotContains(t, notes, "vsanDataStoreUrl")
		} else {
			require.Empty(t, vc.TargetvSANFileShareDatastoreURLs)
			require.Contains(t, notes, "vsanDataStoreUrl")
		}
		if v < "3" {
			require.Equal(t, in.Cluster.UID, c.Global.ClusterID)
		} else {
			require.Empty(t, c.Global.ClusterID)
		}
	})
}

func TestAnyPasswordReachesTheDriverUnchanged(t *testing.T) {
	in := input(t, release(t, matrix.CSI, "3.5.1"))
	holds := func(given string) bool {
		changeVCenter(in, func(v *render.VCenter) { v.Credentials.Password = given })
		out, err := render.Render(in)
		want := strings.TrimSuffix(strings.TrimSuffix(given, "\n"), "\r")
		if !utf8.ValidString(want) || strings.ContainsAny(want, "\x00\r") || want == "" {
			return fault.ReasonOf(err) == fault.InvalidInput && (len(want) < 4 || !strings.Contains(fault.Text(err), want))
		}
		return err == nil && readCSI(t, out).VirtualCenter["vc1.site.example"].Password == want
	}
	for _, p := range []string{`"`, `\`, `\"`, `"\`, ` lead`, `trail `, "tab\t", "line\nbreak", "a\n", "a\r\n", "#;=[]", "\ufeffbom", "\x01\x7f", "é世界🔑", `\n\t\b`, "\x00", "\xff\xfe", ""} {
		require.True(t, holds(p), "%q", p)
	}
	require.NoError(t, quick.Check(func(s string) bool { return holds(s) }, &quick.Config{MaxCount: 40}))
	require.NoError(t, quick.Check(func(b []byte) bool { return holds(string(b)) }, &quick.Config{MaxCount: 40}))
}

func TestClusterIDStaysOnceThereIsOne(t *testing.T) {
	const made, used, requested = "generated-uuid", "used-so-far", "asked-for"
	cases := map[string]struct {
		version, requested, generated, configured string
		want                                      string
		conflict                                  bool
	}{
		"2.x, nothing known":                     {version: "2.7.3", want: "0d9c6e0c-7a39-4c0e-9d7f-1c2f2b5f7a11"},
		"2.x, asked for":                         {version: "2.7.3", requested: requested, want: requested},
		"2.x after 3.x keeps the generated one":  {version: "2.7.3", generated: made, want: made},
		"3.x, nothing known":                     {version: "3.0.3", want: ""},
		"3.x, asked for":                         {version: "3.5.1", requested: requested, want: requested},
		"3.x, generated: naming it stops CSI":    {version: "3.5.1", generated: made, want: ""},
		"3.x, generated and asked for the same":  {version: "3.5.1", generated: made, requested: made, want: ""},
		"3.x, generated and asked for another":   {version: "3.5.1", generated: made, requested: requested, conflict: true},
		"3.x after 2.x keeps the configured one": {version: "3.5.1", configured: used, want: used},
		"configured and asked for another":       {version: "2.7.3", configured: used, requested: requested, conflict: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in := input(t, release(t, matrix.CSI, c.version))
			in.Spec.StorageProvider.ClusterID = c.requested
			in.Cluster.GeneratedClusterID, in.Cluster.ConfiguredClusterID = c.generated, c.configured
			out, err := render.Render(in)
			if c.conflict {
				require.Equal(t, fault.Conflict, fault.ReasonOf(err))
				require.NotEmpty(t, fault.HintOf(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, readCSI(t, out).Global.ClusterID)
			conf := secretData(t, out, render.CSISecret)[render.CSIConfigKey]
			require.Equal(t, c.want, render.ConfiguredClusterID([]byte(conf)))
		})
	}
	in := input(t, release(t, matrix.CSI, "3.5.1"))
	in.Cluster.ConfiguredClusterID = "vc1.site.example"
	require.Contains(t, strings.Join(mustRender(t, in).Notes, "\n"), "another cluster with the same id")
}

func TestBadSettingsAreAllNamedTogether(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.CSI, "3.5.1"))
	in.Spec.CloudProvider.VsphereCloudConfigs = append(in.Spec.CloudProvider.VsphereCloudConfigs, "south")
	in.Spec.StorageProvider.Webhook = true
	in.VCenters["vc-one"] = render.VCenter{
		Server: "vc", Thumbprint: strings.Repeat("AB:", 31) + "AB",
		CA: []byte("-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"), Credentials: render.Credentials{Username: "nodomain"},
	}
	_, err := render.Render(in)
	text := fault.Text(err)
	for _, want := range []string{
		"south", "certificate was not made", "SHA-1 thumbprints only", "there is a private key beside the certificate",
		"no password", "user name with a domain",
	} {
		require.Contains(t, text, want)
	}
	for _, f := range fault.All(err) {
		require.True(t, f.Hint != "" || f.Reason == fault.Internal, f)
	}
}

func TestSeveralVCentersOfTheStorageDriver(t *testing.T) {
	everyRelease(t, []matrix.Driver{matrix.CSI}, func(t *testing.T, id matrix.ReleaseID) {
		in := input(t, id)
		twoVCenters(&in, second())
		out, err := render.Render(in)
		if id.Version.String() < "3" {
			require.Equal(t, fault.Incompatible, fault.ReasonOf(err))
			return
		}
		require.NoError(t, err)
		c := readCSI(t, out)
		require.Len(t, c.VirtualCenter, 2)
		require.True(t, c.VirtualCenter["fd00::2"].InsecureFlag)

		differing := second()
		differing.Insecure, differing.CA = false, authority(t)
		twoVCenters(&in, differing)
		_, err = render.Render(in)
		if id.Version.String() < "3.3" {
			require.Equal(t, fault.Incompatible, fault.ReasonOf(err))
			require.ErrorContains(t, err, "different CAs")
		} else {
			require.NoError(t, err)
		}
	})
	in := input(t, release(t, matrix.CSI, "3.5.1"))
	changeVCenter(in, func(v *render.VCenter) { v.InstanceUUID = "1-1" })
	for server, id := range map[string]string{"vc1.site.example": "", "VC1.site.example": "", "vc1.site.example.": "", "10.0.0.1": "1-1"} {
		same := second()
		same.Server, same.InstanceUUID = server, id
		twoVCenters(&in, same)
		require.ErrorContains(t, must.Err(render.Render(in)), "same vCenter as VsphereCloudConfig vc-one", server)
	}
	another := second()
	another.InstanceUUID = "2-2"
	twoVCenters(&in, another)
	must.Have(render.Render(in))(t)
}

func TestUserNameNeedsADomainFrom31On(t *testing.T) {
	for user, fine := range map[string]bool{"vdo@vsphere.local": true, `corp\vdo-1`: true, "vdo": false, "v do@x": false, "a@b@c": false, "a_b@c": true, "a@b_c": false} {
		for _, v := range []string{"3.0.3", "3.1.2", "3.7.3"} {
			in := input(t, release(t, matrix.CSI, v))
			changeVCenter(in, func(v *render.VCenter) { v.Credentials.Username = user })
			out, err := render.Render(in)
			require.Equal(t, fine || v == "3.0.3", err == nil, "%s with CSI %s: %v", user, v, err)
			if err == nil {
				require.Equal(t, user, readCSI(t, out).VirtualCenter["vc1.site.example"].User)
			}
		}
	}
}

func FuzzConfiguredClusterID(f *testing.F) {
	f.Add([]byte("[Global]\ncluster-id = \"a\\\"b\" ; c\n[VirtualCenter \"x\"]\ncluster-id = y\n"))
	f.Add([]byte("cluster-id = none\n[GLOBAL] \nCLUSTER-ID=a b # c"))
	f.Fuzz(func(t *testing.T, conf []byte) {
		got := render.ConfiguredClusterID(conf)
		var c csiConfig
		if gcfg.ReadInto(&c, bytes.NewReader(conf)) != nil || bytes.ContainsAny(conf, "\\\r") {
			return // the driver would not start with it, or a line continues on the next one
		}
		require.Equal(t, c.Global.ClusterID, got)
	})
}

// Configuration that is kept needs no vCenter, is made of nothing, and is marked, so that
// the one on the cluster takes its place; everything else is rendered as ever.
func TestKeptConfigurationIsNotMadeUp(t *testing.T) {
	in := input(t, release(t, matrix.CPI, "1.33.1"), release(t, matrix.CSI, "3.5.1"))
	in.Keep, in.VCenters = map[matrix.Driver]bool{matrix.CPI: true, matrix.CSI: true}, nil
	out := mustRender(t, in)
	marked := map[string]render.Config{}
	for _, o := range out.Objects() {
		if o.Config != render.NoConfig {
			marked[render.RefOf(o.Unstructured).String()] = o.Config
		}
		if o.Config == render.ConfigData {
			require.Empty(t, o.Object["data"], o.GetName())
		}
	}
	require.Equal(t, map[string]render.Config{
		"ConfigMap kube-system/vsphere-cloud-config":             render.ConfigData,
		"Secret kube-system/vsphere-cloud-secret":                render.ConfigData,
		"DaemonSet kube-system/vsphere-cloud-controller-manager": render.ConfigHash,
		"Secret vmware-system-csi/vsphere-config-secret":         render.ConfigData,
		"Deployment vmware-system-csi/vsphere-csi-controller":    render.ConfigHash,
	}, marked)
	in.Keep = map[matrix.Driver]bool{matrix.CPI: true}
	_, err := render.Render(in)
	require.ErrorContains(t, err, "VsphereCloudConfig vc-one: not found", "the other driver's is rendered")
}
