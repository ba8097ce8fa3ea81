package v1alpha1_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

func TestSettingsOfPods(t *testing.T) {
	const cpi = "cloudProvider: {vsphereCloudConfigs: [a]}\n"
	driver := func(fields string) string { return cpi + "drivers: [{driver: cpi, " + fields + "}]" }
	workload := func(fields string) string { return driver("workloads: [{name: x, " + fields + "}]") }
	patch := func(target, text string) string {
		return cpi + "patches: [{target: {" + target + "}, patch: " + text + "}]"
	}
	const target = "driver: cpi, kind: DaemonSet, name: x"
	tryAll(t, "VDOConfig", []shape{
		{"all of it", workload("nodeSelector: {a: b}, tolerations: [{operator: Exists}], priorityClassName: p, containers: [{name: c, args: [--v=2, -x, '--a=b,c=d'], resources: {requests: {cpu: 1}, limits: {memory: 1Gi}}}]"), ""},
		{"another log level", driver("logLevel: Trace"), "logLevel"},
		{"a workload without a name", driver("workloads: [{name: ''}]"), "name"},
		{"a workload twice", driver("workloads: [{name: a}, {name: a}]"), "Duplicate value"},
		{"an argument with a space", workload("containers: [{name: c, args: ['--a b']}]"), "args"},
		{"an argument that is no flag", workload("containers: [{name: c, args: [sh]}]"), "args"},
		{"no quantity", workload("containers: [{name: c, resources: {requests: {cpu: lots}}}]"), "cpu"},

		{"a log level and a proxy", driver("logLevel: Debug, " +
			"proxy: {https: 'http://proxy.site:3128', noProxy: [.site, 10.0.0.0/8, 'fd00::/8']}"), ""},
		{"a proxy by IPv6", driver("proxy: {https: 'http://[fd00::1]:3128'}"), ""},
		{"a proxy with a login", driver("proxy: {https: 'http://a:b@proxy:3128'}"), "without user and password"},
		{"a proxy without a scheme", driver("proxy: {https: 'proxy:3128'}"), "write a URL"},
		{"a proxy without an address", driver("proxy: {noProxy: [a]}"), "give the proxy in https"},
		{"a list in an item", driver("proxy: {https: 'http://p:1', noProxy: ['a,b']}"), "one host, .domain or subnet an item"},

		{"a patch", patch(target, "'spec: {}'"), ""},
		{"a patch of a Secret", patch("driver: cpi, kind: Secret, name: x", "'a: b'"), "Unsupported value"},
		{"a patch of rights", patch("driver: cpi, kind: ClusterRole, name: x", "'a: b'"), "Unsupported value"},
		{"a patch of nothing", patch("driver: cpi, kind: DaemonSet", "'a: b'"), "name: Required value"},
		{"a patch of another driver", patch("driver: other, kind: DaemonSet, name: x", "'a: b'"), "Unsupported value"},
		{"an empty patch", patch(target, "''"), "patch"},
		{"a long patch", patch(target, strings.Repeat("x", 8193)), "Too long"},
	})
}

func TestSettingsOfDrivers(t *testing.T) {
	const vc = "vsphereCloudConfig: a"
	csi := func(fields string) string { return "storageProvider: {" + vc + ", " + fields + "}" }
	cpi := func(fields string) string { return "cloudProvider: {vsphereCloudConfigs: [a], " + fields + "}" }
	tryAll(t, "VDOConfig", []shape{
		{"limits", csi("snapshots: {maxPerVolume: 5, maxPerVolumeVSAN: 9}, queryLimit: 500, listVolumeThreshold: 5, featureStates: {a-b: true}"), ""},
		{"too many snapshots", csi("snapshots: {maxPerVolume: 33}"), "less than or equal to 32"},
		{"a feature state that is a text", csi("featureStates: {a: 'on'}"), "must be of type boolean"},
		{"clusters of file shares", csi("fileVolumes: {vsanClusters: [{clusters: [domain-c8, domain-s9]}]}"), ""},
		{"a cluster by name", csi("fileVolumes: {vsanClusters: [{clusters: [Cluster1]}]}"), "clusters"},
		{"classes", csi("storageClasses: [{name: gold, storagePolicy: 'Gold, 2', default: true}, {name: ds, datastoreURL: 'ds:///vmfs/volumes/vsan:1/', fsType: xfs}], snapshotClasses: [{name: s, default: true}]"), ""},
		{"a class of both", csi("storageClasses: [{name: gold, storagePolicy: a, datastoreURL: 'ds:///x'}]"), "and not both"},
		{"a datastore by name", csi("storageClasses: [{name: gold, datastoreURL: vsanDatastore}]"), "write a datastore's URL"},
		{"two defaults", csi("storageClasses: [{name: a, default: true}, {name: b, default: true}]"), "one class can be the default"},
		{"a class twice", csi("storageClasses: [{name: a}, {name: a}]"), "Duplicate value"},
		{"addresses", cpi("ipFamilies: [ipv6, ipv4], nodeAddresses: {internalSubnets: [10.0.0.0/8], externalNetwork: 'VM Network'}, acceptNodeDeletion: [vc/dc]") + "\nexcludedNodes: {site/metal: 'yes'}", ""},
		{"another family", cpi("ipFamilies: [ipv5]"), "Unsupported value"},
		{"a family twice", cpi("ipFamilies: [ipv4, ipv4]"), "Duplicate value"},
	})
}

// What anybody may write is kept in a bounded way, and another value is another one.
func TestWhatIsAskedForIsKeptBounded(t *testing.T) {
	asked := func(value string) string {
		v := &v1alpha1.VDOConfig{}
		v.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: value}
		return v1alpha1.Asked(v, v1alpha1.AnnotationRequestedAt)
	}
	require.Empty(t, v1alpha1.Asked(&v1alpha1.VDOConfig{}, v1alpha1.AnnotationRequestedAt))
	for _, short := range []string{"2026-08-01T12:00:00Z", strings.Repeat("x", v1alpha1.MaxAsked)} {
		require.Equal(t, short, asked(short))
	}
	long := "r3-33333333 " + strings.Repeat("x", 150<<10)
	require.LessOrEqual(t, len(asked(long)), v1alpha1.MaxAsked)
	require.True(t, strings.HasPrefix(asked(long), "r3-33333333 "), "what it names is read still")
	require.NotEqual(t, asked(long), asked(long+"x"))
	require.True(t, utf8.ValidString(asked(strings.Repeat("ü", 1000)+"x")))
	require.True(t, utf8.ValidString(asked("x"+strings.Repeat("ü", 1000))))
}

func TestAVCentersHostIsComparedInOneForm(t *testing.T) {
	for given, want := range map[string]string{
		"vc1.site.example": "vc1.site.example", "VC1.Site.Example": "vc1.site.example", "vc1.site.example.": "vc1.site.example",
		"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1",
		"2001:DB8:0::1": "2001:db8::1", "[2001:db8::1]": "2001:db8::1",
		"": "",
	} {
		require.Equal(t, want, v1alpha1.CanonicalHost(given), given)
		require.Equal(t, want, v1alpha1.CanonicalHost(" "+given+"\n"), given)
	}
}
