package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m) }

func connect(t *testing.T) (client.Client, string) {
	t.Helper()
	cfg := cluster.Config(t)
	return cluster.Client(t, cfg), cluster.Namespace(t, cfg)
}

// object makes a resource of a spec in YAML.
func object(t *testing.T, ns, kind, spec string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	var parsed any
	require.NoError(t, yaml.Unmarshal([]byte(spec), &parsed), spec)
	u.Object["spec"] = parsed
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	u.SetNamespace(ns)
	u.SetGenerateName("x-")
	return u
}

// shape is one spec and what the API server says to it: nothing, or a fragment of
// its message.
type shape struct{ name, spec, refusal string }

func tryAll(t *testing.T, kind string, shapes []shape) {
	c, ns := connect(t)
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			err := c.Create(t.Context(), object(t, ns, kind, s.spec), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
			if s.refusal == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			require.True(t, apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), "%v", err)
			require.ErrorContains(t, err, s.refusal)
		})
	}
}

var sha = "sha256:" + strings.Repeat("a1", 32)

func TestDriverBundle(t *testing.T) {
	const ref = "reference: r.site/vdo:1\n"
	tryAll(t, "DriverBundle", []shape{
		{"tag", `reference: registry.site:5000/vdo/drivers:1.2-x_y`, ""},
		{"digest", `reference: registry.site/vdo@` + sha, ""},
		{"tag and digest", `reference: registry.site/vdo:1@` + sha, ""},
		{"no tag", `reference: registry.site/vdo`, ""},
		{"IPv6", `reference: "[fd00::1]:5000/vdo:1"`, ""},
		{"scheme", `reference: oci://registry.site/vdo:1`, "without oci:// or https://"},
		{"no path", `reference: registry.site`, "write HOST/PATH:TAG"},
		{"short digest", `reference: registry.site/vdo@sha256:abc`, "write HOST/PATH:TAG"},
		{"upper-case path", `reference: registry.site/VDO:1`, "write HOST/PATH:TAG"},
		{"no reference", `suspend: true`, "spec.reference: Required value"},
		{"empty reference", `reference: ""`, "spec.reference"},
		{"long reference", `reference: r.site/` + strings.Repeat("a", 1024), "Too long"},
		{"unknown field", ref + `referense: x`, `unknown field "spec.referense"`},

		{"range and digest", `{reference: "r.site/vdo@` + sha + `", versions: ">=1"}`, "versions needs a reference without a digest"},
		{"long range", ref + `versions: ` + strings.Repeat("v", 257), "Too long"},

		{"pull secret", ref + `pullSecret: {name: x}`, ""},
		{"pull secret without name", ref + `pullSecret: {name: ""}`, "spec.pullSecret.name"},
		{"CA", ref + `ca: {configMap: x, key: k}`, ""},
		{"CA of both", ref + `ca: {configMap: x, secret: z}`, "give exactly one of configMap and secret"},
		{"CA of none", ref + `ca: {key: x}`, "give exactly one of configMap and secret"},
		{"CA of an empty name", ref + `ca: {secret: ""}`, "spec.ca.secret"},

		{"trust", ref + `trust: {threshold: 2, keys: [{id: a, publicKey: PEM}, {id: b, from: {configMap: c}}]}`, ""},
		{"trust in nobody", ref + `trust: {keys: []}`, "spec.trust.keys"},
		{"key of two sources", ref + `trust: {keys: [{id: a, publicKey: PEM, from: {secret: s}}]}`, "give exactly one of publicKey and from"},
		{"key of no source", ref + `trust: {keys: [{id: a}]}`, "give exactly one of publicKey and from"},
		{"key without id", ref + `trust: {keys: [{id: "", publicKey: PEM}]}`, "spec.trust.keys[0].id"},
		{"key twice", ref + `trust: {keys: [{id: a, publicKey: P}, {id: a, publicKey: Q}]}`, "Duplicate value"},
		{"threshold 0", ref + `trust: {threshold: 0, keys: [{id: a, publicKey: PEM}]}`, "greater than or equal to 1"},
		{"threshold beyond the keys", ref + `trust: {threshold: 2, keys: [{id: a, publicKey: PEM}]}`, "threshold asks for more keys than are listed"},
		{"certificates", ref + `trust: {certificates: [{id: corp, roots: PEM, intermediatesFrom: {secret: s}, identities: [{email: a@b.c}, {uri: "spiffe://x/y"}, {dns: d.example}], extendedKeyUsage: 1.3.6.1.5.5.7.3.3, timestampRootsFrom: {configMap: t, key: k}, revokedSerials: ["1f:03"]}]}`, ""},
		{"keys, certificates and keyless count together", ref + `trust: {threshold: 2, keys: [{id: a, publicKey: PEM}], certificates: [{id: corp, rootsFrom: {configMap: c}, identities: [{email: a@b.c}]}]}`, ""},
		{"threshold beyond both", ref + `trust: {threshold: 3, keys: [{id: a, publicKey: PEM}], certificates: [{id: corp, roots: PEM, identities: [{email: a@b.c}]}]}`, "keys, certificates and keyless count together"},
		{"trust in nothing", ref + `trust: {threshold: 1}`, "give keys, certificates or keyless"},
		{"no certificates", ref + `trust: {certificates: []}`, "spec.trust.certificates"},
		{"roots of two sources", ref + `trust: {certificates: [{id: corp, roots: PEM, rootsFrom: {secret: s}, identities: [{email: a@b.c}]}]}`, "give exactly one of roots and rootsFrom"},
		{"no roots", ref + `trust: {certificates: [{id: corp, identities: [{email: a@b.c}]}]}`, "give exactly one of roots and rootsFrom"},
		{"time stamps of two sources", ref + `trust: {certificates: [{id: corp, roots: P, timestampRoots: P, timestampRootsFrom: {secret: s}, identities: [{email: a@b.c}]}]}`, "give one of timestampRoots and timestampRootsFrom"},
		{"intermediates of two sources", ref + `trust: {certificates: [{id: corp, roots: P, intermediates: P, intermediatesFrom: {secret: s}, identities: [{email: a@b.c}]}]}`, "give one of intermediates and intermediatesFrom"},
		{"certificates of everybody", ref + `trust: {certificates: [{id: corp, roots: PEM}]}`, "identities: Required value"},
		{"certificates of nobody", ref + `trust: {certificates: [{id: corp, roots: PEM, identities: []}]}`, "identities"},
		{"a pattern of identities", ref + `trust: {certificates: [{id: corp, roots: PEM, identities: [{email: "*@b.c"}]}]}`, "without wildcards"},
		{"an identity of two names", ref + `trust: {certificates: [{id: corp, roots: PEM, identities: [{email: a@b.c, dns: d}]}]}`, "exactly one of email, uri and dns"},
		{"an identity of no name", ref + `trust: {certificates: [{id: corp, roots: PEM, identities: [{}]}]}`, "exactly one of email, uri and dns"},
		{"certificates twice", ref + `trust: {certificates: [{id: a, roots: P, identities: [{email: a@b.c}]}, {id: a, roots: P, identities: [{email: b@b.c}]}]}`, "Duplicate value"},
		{"an unknown use", ref + `trust: {certificates: [{id: corp, roots: PEM, identities: [{email: a@b.c}], extendedKeyUsage: any}]}`, "extendedKeyUsage"},
		{"a serial that is none", ref + `trust: {certificates: [{id: corp, roots: PEM, identities: [{email: a@b.c}], revokedSerials: [xyz]}]}`, "revokedSerials[0]"},
		{"keyless", ref + `trust: {keyless: [{id: k8s, trustedRoot: x, identities: [{subject: a, issuer: b}]}]}`, ""},
		{"keyless beside keys", ref + `trust: {threshold: 2, keys: [{id: a, publicKey: PEM}], keyless: [{id: k8s, trustedRootFrom: {configMap: c}, identities: [{subject: a, issuer: b}], withoutTransparencyLog: true}]}`, ""},
		{"keyless by everybody", ref + `trust: {keyless: [{id: k8s, trustedRoot: x}]}`, "identities: Required value"},
		{"keyless by nobody", ref + `trust: {keyless: [{id: k8s, trustedRoot: x, identities: []}]}`, "identities"},
		{"keyless by every issuer", ref + `trust: {keyless: [{id: k8s, trustedRoot: x, identities: [{subject: a}]}]}`, "issuer: Required value"},
		{"keyless by every subject", ref + `trust: {keyless: [{id: k8s, trustedRoot: x, identities: [{issuer: a, subject: ""}]}]}`, "subject"},
		{"a pattern of logins", ref + `trust: {keyless: [{id: k8s, trustedRoot: x, identities: [{issuer: a, subject: "*@b.c"}]}]}`, "without wildcards"},
		{"no trusted root", ref + `trust: {keyless: [{id: k8s, identities: [{subject: a, issuer: b}]}]}`, "give exactly one of trustedRoot and trustedRootFrom"},
		{"two trusted roots", ref + `trust: {keyless: [{id: k8s, trustedRoot: x, trustedRootFrom: {secret: s}, identities: [{subject: a, issuer: b}]}]}`, "give exactly one of trustedRoot and trustedRootFrom"},
		{"keyless twice", ref + `trust: {keyless: [{id: a, trustedRoot: x, identities: [{subject: a, issuer: b}]}, {id: a, trustedRoot: x, identities: [{subject: c, issuer: b}]}]}`, "Duplicate value"},
		{"revoked digest", ref + `trust: {revokedDigests: ["` + sha + `"], keys: [{id: a, publicKey: PEM}]}`, ""},
		{"revoked nonsense", ref + `trust: {revokedDigests: [abc], keys: [{id: a, publicKey: PEM}]}`, "spec.trust.revokedDigests[0]"},
		{"matrix trust in nobody", ref + `matrixTrust: {keys: []}`, "spec.matrixTrust.keys"},

		{"interval", ref + `interval: 10s`, ""},
		{"short interval", ref + `interval: 9s`, "at least 10s"},
		{"a port beyond 65535", `reference: h:99999/x:1`, "a host with a port up to 65535"},
		{"port 0", `reference: h:0/x:1`, "a host with a port up to 65535"},
		{"the highest port", `reference: h:65535/x:1`, ""},
		{"a host of dots", `reference: .../x:1`, "write HOST/PATH:TAG"},
		{"a host with a hyphen behind", `reference: h-/x:1`, "write HOST/PATH:TAG"},
		{"a path of dots", `reference: h.site/a/../x:1`, "write HOST/PATH:TAG"},
		{"a pull Secret of no name", ref + `pullSecret: {name: "../x Y"}`, "write the name of a Kubernetes object"},
		{"accept older", ref + `acceptOlder: ` + sha, ""},
		{"accept nonsense", ref + `acceptOlder: latest`, "spec.acceptOlder"},
	})
}

func TestVsphereCloudConfig(t *testing.T) {
	const min = "vcIp: vc.site\ncredentials: c\n"
	one, two := strings.Repeat("0a:", 19)+"FF", strings.Repeat("0a:", 31)+"FF"
	tryAll(t, "VsphereCloudConfig", []shape{
		{"IPv4", `{vcIp: 10.0.0.1, credentials: c}`, ""},
		{"IPv6", `{vcIp: "fd00::1", credentials: c}`, ""},
		{"scheme", `{vcIp: "https://vc.site", credentials: c}`, "no scheme, path, port, brackets or user"},
		{"port", `{vcIp: "vc.site:443", credentials: c}`, "no scheme, path, port, brackets or user"},
		{"brackets", `{vcIp: "[fd00::1]", credentials: c}`, "no scheme, path, port, brackets or user"},
		{"line end", "vcIp: \"vc.site\\n\"\ncredentials: c", "no scheme, path, port, brackets or user"},
		{"empty host", `{vcIp: "", credentials: c}`, "spec.vcIp"},
		{"no host", `credentials: c`, "spec.vcIp: Required value"},
		{"long host", `{vcIp: ` + strings.Repeat("a", 254) + `, credentials: c}`, "Too long"},
		{"no credentials", `vcIp: vc.site`, "spec.credentials: Required value"},
		{"empty credentials", `{vcIp: vc.site, credentials: ""}`, "spec.credentials"},

		{"highest port", min + `port: 65535`, ""},
		{"port 0", min + `port: 0`, "greater than or equal to 1"},
		{"port too high", min + `port: 65536`, "less than or equal to 65535"},

		{"SHA-1", min + `thumbprint: ` + one, ""},
		{"SHA-256", min + `thumbprint: ` + two, ""},
		{"no thumbprint", min + `thumbprint: ""`, ""},
		{"thumbprint without colons", min + `thumbprint: ` + strings.ReplaceAll(one, ":", ""), "write a thumbprint as 20"},
		{"insecure", min + `insecure: true`, ""},
		// The predecessor's command line wrote this; the thumbprint was checked.
		{"insecure and thumbprint", min + "insecure: true\nthumbprint: " + one, ""},
		{"insecure and CA", min + "insecure: true\nca: {secret: s}", "insecure excludes ca"},
		{"not insecure, and CA", min + "insecure: false\nca: {secret: s}", ""},

		{"comma", min + `datacenters: ["a,b"]`, "a datacenter's name cannot have a comma"},
		{"comma and space", min + `datacenters: ["a, b"]`, "a datacenter's name cannot have a comma"},
		{"comma alone", min + `datacenters: ["a", ","]`, "a datacenter's name cannot have a comma"},
		{"comma behind, as a list was typed", min + `datacenters: ["dc0,", "dc1"]`, ""},
		{"datacenter of two lines", min + `datacenters: ["a\nuser = x"]`, "a datacenter's name is one line"},
		{"datacenter in another script", min + `datacenters: ["Zürich/東京"]`, ""},
		{"empty datacenter", min + `datacenters: [""]`, "spec.datacenters[0]"},
		{"too many datacenters", min + `datacenters: [` + strings.Repeat("a,", 65) + `]`, "must have at most 64 items"},
		{"short interval", min + `interval: 1s`, "at least 10s"},
		{"interval", min + `interval: 1h30m`, ""},

		{"an address beyond 255", `{vcIp: 999.1.1.1, credentials: c}`, "write a host name such as vcenter.site.example, or an IP address"},
		{"an address of three numbers", `{vcIp: 10.1.1, credentials: c}`, "write a host name"},
		{"an address with zeros before", `{vcIp: 010.1.1.1, credentials: c}`, "write a host name"},
		{"a number", `{vcIp: "12345", credentials: c}`, "write a host name"},
		{"an empty label", `{vcIp: "vc..site", credentials: c}`, "write a host name"},
		{"a label with a hyphen before", `{vcIp: "-vc.site", credentials: c}`, "write a host name"},
		{"IPv6 with two gaps", `{vcIp: "fd00::1::2", credentials: c}`, "write a host name"},
		{"IPv6 with nine groups", `{vcIp: "1:2:3:4:5:6:7:8:9", credentials: c}`, "write a host name"},
		{"IPv6 in full", `{vcIp: "1:2:3:4:5:6:7:8", credentials: c}`, ""},
		{"IPv6 with a gap in front", `{vcIp: "::1", credentials: c}`, ""},
		{"a name with a number before", `{vcIp: 7vc-0.site.example, credentials: c}`, ""},
		{"a name with an underscore", `{vcIp: vc_1.site, credentials: c}`, ""},
		{"a name with a dot behind", `{vcIp: vc.site., credentials: c}`, ""},
		{"credentials that name no Secret", `{vcIp: vc.site, credentials: "../x Y"}`, "write the name of a Kubernetes object"},
		{"CA of no ConfigMap", min + `ca: {configMap: "../x Y"}`, "write the name of a Kubernetes object"},
		{"CA of no key", min + `ca: {configMap: x, key: "a/b c"}`, "write a key of a ConfigMap or Secret"},
	})
}

func TestVDOConfig(t *testing.T) {
	const cpi = "cloudProvider: {vsphereCloudConfigs: [a]}\n"
	csi := func(fields string) string { return "storageProvider: {vsphereCloudConfig: a" + fields + "}" }
	tryAll(t, "VDOConfig", []shape{
		{"both", cpi + csi(""), ""},
		{"neither", `suspend: true`, "name a storageProvider, a cloudProvider, or both"},

		{"CPI without a vCenter", `cloudProvider: {vsphereCloudConfigs: []}`, "one that names vCenters in vsphereCloudConfigs"},
		{"CPI of nothing", `cloudProvider: {}`, "one that names vCenters in vsphereCloudConfigs"},
		// The predecessor wrote these for the storage driver alone.
		{"CSI alone, with an empty topology", csi("") + "\ncloudProvider: {topology: {zone: \"\", region: \"\"}}", ""},
		{"CSI alone, with an empty cloudProvider", csi("") + "\ncloudProvider: {}", ""},
		{"CSI alone, with an empty list", csi("") + "\ncloudProvider: {vsphereCloudConfigs: []}", ""},
		{"a vCenter of no name", `cloudProvider: {vsphereCloudConfigs: ["../x Y"]}`, "write the name of a Kubernetes object"},
		{"CSI with a vCenter of no name", `storageProvider: {vsphereCloudConfig: "A_b"}`, "write the name of a Kubernetes object"},
		{"CSI with further vCenters of no name", csi(`, vsphereCloudConfigs: ["b\n"], topologyCategories: [zone]`), "write the name of a Kubernetes object"},
		{"zone of two lines", `cloudProvider: {vsphereCloudConfigs: [a], topology: {zone: "z\n", region: r}}`, "a tag category's name is one line"},
		{"CPI with an empty name", `cloudProvider: {vsphereCloudConfigs: [""]}`, "spec.cloudProvider.vsphereCloudConfigs[0]"},
		{"CPI with one name twice", `cloudProvider: {vsphereCloudConfigs: [a, a]}`, "Duplicate value"},
		{"topology", `cloudProvider: {vsphereCloudConfigs: [a], topology: {zone: z, region: r}}`, ""},
		{"empty topology", `cloudProvider: {vsphereCloudConfigs: [a], topology: {zone: "", region: ""}}`, ""},
		{"zone alone", `cloudProvider: {vsphereCloudConfigs: [a], topology: {zone: z}}`, "zone and region go together"},
		{"region alone", `cloudProvider: {vsphereCloudConfigs: [a], topology: {zone: "", region: r}}`, "zone and region go together"},

		{"CSI without a vCenter", `storageProvider: {clusterDistribution: x}`, "name the vCenter in vsphereCloudConfig"},
		{"CSI with an empty name", `storageProvider: {vsphereCloudConfig: ""}`, "name the vCenter in vsphereCloudConfig"},
		{"CSI by the list", `storageProvider: {vsphereCloudConfigs: [a]}`, ""},
		{"the same in both", csi(`, vsphereCloudConfigs: [a]`), ""},
		{"two vCenters without topology", csi(`, vsphereCloudConfigs: [b]`), "several vCenters need topologyCategories"},
		{"two in the list without topology", `storageProvider: {vsphereCloudConfigs: [a, b]}`, "several vCenters need topologyCategories"},
		{"five vCenters", csi(`, vsphereCloudConfigs: [b, c, d, e], topologyCategories: [zone]`), ""},
		{"six vCenters", csi(`, vsphereCloudConfigs: [b, c, d, e, f], topologyCategories: [zone]`), "five vCenters at most"},
		{"six categories", csi(`, topologyCategories: [a, b, c, d, e, f]`), "must have at most 5 items"},
		{"category twice", csi(`, topologyCategories: [a, a]`), "Duplicate value"},
		{"category with a comma", csi(`, topologyCategories: ["a,b"]`), "a category's name cannot have a comma"},

		{"distribution of two lines", csi(`, clusterDistribution: "a\r"`), "one line only"},
		{"long distribution", csi(`, clusterDistribution: ` + strings.Repeat("a", 129)), "Too long"},
		{"long cluster id", csi(`, clusterID: ` + strings.Repeat("a", 65)), "Too long"},
		{"no kubelet path", csi(`, customKubeletPath: ""`), ""},
		{"relative kubelet path", csi(`, customKubeletPath: var/lib`), "spec.storageProvider.customKubeletPath"},
		{"kubelet path with a slash behind, as the predecessor took it", csi(`, customKubeletPath: /var/lib/`), ""},
		{"the root as kubelet path", csi(`, customKubeletPath: /`), "write the full path of a folder, such as /var/lib/kubelet"},
		{"kubelet path that climbs", csi(`, customKubeletPath: /var/lib/../../etc`), "write the full path of a folder"},
		{"kubelet path with an empty part", csi(`, customKubeletPath: /var//lib`), "write the full path of a folder"},
		{"kubelet path with a space", csi(`, customKubeletPath: "/var/lib kubelet"`), "write the full path of a folder"},
		{"cluster id of two lines", csi(`, clusterID: "c\nuser = x"`), "a cluster id is one line"},
		{"cluster id with space behind", csi(`, clusterID: "c "`), "a cluster id is one line, without space around it"},
		{"category of two lines", csi(`, topologyCategories: ["a\nb"]`), "a category's name is one line"},
		{"datastore of two lines", csi(`, fileVolumes: {vsanDataStoreUrl: ["ds:///x/\n"]}`), "a datastore's URL is one line"},
		{"share for no address", csi(`, fileVolumes: {netPermissions: [{ips: "everybody!"}]}`), "write an IP address, a subnet such as 10.0.0.0/16, or *"},
		{"an empty fileVolumes", csi(`, fileVolumes: {}`), ""},
		{"file volumes", csi(`, fileVolumes: {vsanDataStoreUrl: ["ds:///x/"], netPermissions: [{ips: "*", permissions: READ_ONLY, rootSquash: true}]}`), ""},
		{"unknown permission", csi(`, fileVolumes: {netPermissions: [{permissions: WRITE}]}`), `supported values: "READ_WRITE", "READ_ONLY", "NO_ACCESS"`},

		{"policies", cpi + `drivers: [{driver: cpi, policy: lts}, {driver: csi, version: v3.5.1}, {driver: cni, policy: disabled}, {driver: snapshot-controller, policy: latest}]`, ""},
		{"unknown driver", cpi + `drivers: [{driver: gpu}]`, `supported values: "cpi", "csi", "cni", "snapshot-controller"`},
		{"unknown policy", cpi + `drivers: [{driver: cpi, policy: newest}]`, `supported values: "latest", "lts", "disabled"`},
		{"half a version", cpi + `drivers: [{driver: cpi, version: "1.33"}]`, "write a whole version, such as 3.5.1"},
		{"driver twice", cpi + `drivers: [{driver: cpi}, {driver: cpi}]`, "Duplicate value"},
		{"unknown upgrade", cpi + `upgrade: Never`, `supported values: "Automatic", "Manual"`},
		{"unknown on delete", cpi + `onDelete: Keep`, `supported values: "Refuse", "Remove", "Orphan"`},
		{"short interval", cpi + `interval: 1s`, "at least 10s"},
		{"no interval", cpi + `interval: never`, "write a duration of at least 10s, such as 90s, 10m or 1h30m"},
		{"an empty interval", cpi + `interval: ""`, "write a duration of at least 10s"},
		{"an interval without unit", cpi + `interval: "600"`, "write a duration of at least 10s"},
		{"an interval beyond all time", cpi + `interval: 99999999999h`, "write a duration of at least 10s"},
	})
}

func TestPreflightPolicies(t *testing.T) {
	spec := func(preflight string) string {
		return "storageProvider: {vsphereCloudConfig: vc}\npreflight: " + preflight
	}
	tryAll(t, "VDOConfig", []shape{
		{"nothing turned down", spec("{}"), ""},
		{"turned down with reasons", spec("{interval: 1h, checks: [{id: vm-disk-uuid, action: Warn, reason: on Monday}, {id: vcenter-excess, action: Disabled, reason: a lab}]}"), ""},
		{"unknown check", spec("{checks: [{id: vm-uuid, action: Warn, reason: x}]}"), `"vm-uuid": supported values: "cluster", "cluster-id", "node-vm"`},
		{"unknown action", spec("{checks: [{id: vm-scsi, action: Pass, reason: x}]}"), `supported values: "Warn", "Disabled"`},
		{"no reason", spec("{checks: [{id: vm-scsi, action: Warn}]}"), "reason: Required value"},
		{"reason of spaces", spec(`{checks: [{id: vm-scsi, action: Warn, reason: "  "}]}`), "write the reason in words"},
		{"reason of two lines", spec(`{checks: [{id: vm-scsi, action: Warn, reason: "a\nb"}]}`), "on one line"},
		{"twice", spec("{checks: [{id: vm-scsi, action: Warn, reason: x}, {id: vm-scsi, action: Disabled, reason: x}]}"), "Duplicate value"},
		{"too often", spec("{interval: 10s}"), "write a duration of at least 5m"},
	})
}

func TestUpgradePolicies(t *testing.T) {
	spec := func(policy string) string {
		return "cloudProvider: {vsphereCloudConfigs: [vc]}\nupgradePolicy: {" + policy + "}"
	}
	window := func(fields string) string { return spec("windows: [{" + fields + "}]") }
	canary := func(fields string) string { return spec("canary: {" + fields + "}") }
	const workers = "nodeSelector: {matchLabels: {a: b}}"
	tryAll(t, "VDOConfig", []shape{
		{"a window", window(`schedule: "0 2 * * 6", duration: 1h, timeZone: Europe/Berlin`), ""},
		{"four fields", window(`schedule: "0 2 * *", duration: 1h`), "schedule"},
		{"a time zone", window(`schedule: "TZ=UTC 2 * * *", duration: 1h`), "schedule"},
		{"a local zone", window(`schedule: "0 2 * * *", duration: 1h, timeZone: Local`), "timeZone"},
		{"a path", window(`schedule: "0 2 * * *", duration: 1h, timeZone: ../../etc/passwd`), "timeZone"},
		{"no time", window(`schedule: "0 2 * * *", duration: 1s`), "duration"},
		{"nobody", spec("approval: {revision: r1-00000000}"), "approval.by"},
		{"a short deadline", spec("healthDeadline: 1s"), "healthDeadline"},
		{"another rollback", spec("rollback: Sometimes"), "rollback"},
		{"no release", spec("allowDowngrade: [csi]"), "allowDowngrade"},
		{"an unknown driver", spec("allowDowngrade: [nfs@1.2.3]"), "allowDowngrade"},
		{"chosen nodes", canary(workers + ", soak: 1h"), ""},
		{"all nodes", canary("nodeSelector: {}"), "canary"},
		{"a long soak", canary(workers + ", soak: 200h"), "soak"},
	})
}

// The operator refuses an id that the driver does not have, and its hint is to do this.
func TestAWrongClusterIDCanBeSetRightAndTakenOut(t *testing.T) {
	c, ns := connect(t)
	u := object(t, ns, "VDOConfig", `storageProvider: {vsphereCloudConfig: a, clusterID: wrong}`)
	require.NoError(t, c.Create(t.Context(), u))
	for _, id := range []string{`"right"`, "null"} {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"storageProvider": {"clusterID": `+id+`}}}`))
		require.NoError(t, c.Patch(t.Context(), u, patch), id)
	}
}

// Typed clients leave fields unset; the API server fills in the defaults.
func TestDefaults(t *testing.T) {
	c, ns := connect(t)
	at := metav1.ObjectMeta{Namespace: ns, GenerateName: "x-"}
	b := &v1alpha1.DriverBundle{ObjectMeta: at, Spec: v1alpha1.DriverBundleSpec{Reference: "r.site/vdo:1",
		Trust: &v1alpha1.TrustPolicy{Keys: []v1alpha1.TrustKey{{ID: "a", PublicKey: "PEM"}}}}}
	require.NoError(t, c.Create(t.Context(), b))
	require.Equal(t, "10m0s", b.Spec.Interval.Duration.String())
	require.EqualValues(t, 1, b.Spec.Trust.Threshold)

	v := &v1alpha1.VsphereCloudConfig{ObjectMeta: at, Spec: v1alpha1.VsphereCloudConfigSpec{VcIP: "vc.site", Credentials: "c"}}
	require.NoError(t, c.Create(t.Context(), v))
	require.Equal(t, "10m0s", v.Spec.Interval.Duration.String())
	require.EqualValues(t, 443, v.Spec.Port)

	d := &v1alpha1.VDOConfig{ObjectMeta: at, Spec: v1alpha1.VDOConfigSpec{
		CloudProvider: &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"a"}}}}
	require.NoError(t, c.Create(t.Context(), d))
	require.Equal(t, "5m0s", d.Spec.Interval.Duration.String())
	require.Equal(t, v1alpha1.DeleteRefuse, d.Spec.OnDelete)
	require.Empty(t, d.Spec.Upgrade)
}

func TestRangesOfVersionsAreThoseThatTheOperatorReads(t *testing.T) {
	const ref = "reference: r.site/vdo:1\n"
	ranges := []string{"1", "v1", "1.2", "1.2.3", "=1.2.3", "!=1.2.3", ">1", ">=1", "=>1", "<2", "<=2", "=<2", "~1.4", "~>1.4", "^1.4",
		">=1.2 <2", ">=1.2, <2", ">= 1.2 < 2", "1.2 - 2.0", "1.x", "1.2.*", "*", "x", "<1 || >=2.1", "1.2.3-rc.1", ">=1.2.3-0+b5", " 1 ",
		">=banana", ">=", ">=1.2 <", "1..2", "1.2.3.4", "latest", "||", "1 ||", "><1", "1.2.3-", "-1", "1;2"}
	var shapes []shape
	for _, r := range ranges {
		s := shape{name: r, spec: ref + fmt.Sprintf("versions: %q", r)}
		if _, err := semver.NewConstraint(r); err != nil {
			s.refusal = "write a range of versions"
		}
		shapes = append(shapes, s)
	}
	tryAll(t, "DriverBundle", shapes)
}

func TestShapesOfThePredecessorMeanWhatTheyMeant(t *testing.T) {
	alone := v1alpha1.VDOConfigSpec{CloudProvider: &v1alpha1.CloudProvider{Topology: &v1alpha1.Topology{}}}
	require.Nil(t, alone.Cloud(), "no cloud provider without a vCenter")
	both := v1alpha1.VDOConfigSpec{CloudProvider: &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"a"}}}
	require.Same(t, both.CloudProvider, both.Cloud())
	for given, want := range map[string]string{"": "", "/var/lib/kubelet/": "/var/lib/kubelet", "/data/kubelet//": "/data/kubelet", "/": "/"} {
		p := v1alpha1.StorageProvider{CustomKubeletPath: given}
		require.Equal(t, want, p.KubeletPath(), given)
	}
	vcc := v1alpha1.VsphereCloudConfigSpec{Datacenters: []string{"dc0,", "dc1 ,", "f/dc 2"}, Insecure: true, Thumbprint: "0A"}
	require.Equal(t, []string{"dc0", "dc1", "f/dc 2"}, vcc.DatacenterNames())
	require.False(t, vcc.AnyCertificate(), "a thumbprint is checked")
	vcc.Thumbprint = ""
	require.True(t, vcc.AnyCertificate())
}

// crd reads one of deploy/crds.
func crd(t *testing.T, plural string) *unstructured.Unstructured {
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "crds", "vdo.vmware.com_"+plural+".yaml"))
	require.NoError(t, err)
	u := &unstructured.Unstructured{}
	asJSON, err := yaml.YAMLToJSON(data)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(asJSON, &u.Object))
	return u
}

// unchecked takes out of a schema all that refuses something but types, as the
// predecessor's CRDs had it.
func unchecked(schema any) any {
	switch s := schema.(type) {
	case map[string]any:
		for _, key := range []string{
			"x-kubernetes-validations", "required", "enum", "pattern", "minLength", "maxLength", "minItems", "maxItems",
			"minimum", "maximum", "minProperties", "maxProperties", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
		} {
			if _, isField := s[key].(map[string]any); !isField { // one that is named like it
				delete(s, key)
			}
		}
		for key, value := range s {
			s[key] = unchecked(value)
		}
	case []any:
		for i := range s {
			s[i] = unchecked(s[i])
		}
	}
	return schema
}

// What was stored under the predecessor's CRDs is not lost under these: whatever rule it
// breaks, it can be annotated, its status written, the finalizer put on and taken off,
// and it can be deleted. The rules are held against what is changed of the spec.
func TestWhatWasStoredBeforeTheRulesCanBeKeptAndDeleted(t *testing.T) {
	cfg := cluster.New(t, cluster.Options{}).Config()
	c := cluster.Client(t, cfg)
	ns := cluster.Namespace(t, cfg)
	for plural, k := range map[string]struct {
		kind   string
		shapes []string
		change string // of a spec: a patch that breaks a rule
		rule   string
	}{
		"vdoconfigs": {"VDOConfig", []string{
			`{}`,
			`{cloudProvider: {}}`,
			`{cloudProvider: {vsphereCloudConfigs: [A_B, A_B], topology: {zone: z}}}`,
			`{storageProvider: {}}`,
			`{storageProvider: {vsphereCloudConfig: v, customKubeletPath: relative, clusterDistribution: "a\nb"}}`,
			`{storageProvider: {vsphereCloudConfig: v, fileVolumes: {vsanDataStoreUrl: ["a\nb"], netPermissions: [{ips: banana, permissions: ALL}]}}}`,
		}, `{"spec":{"storageProvider":{"vsphereCloudConfig":"C D"}}}`, "write the name of a Kubernetes object"},
		"vspherecloudconfigs": {"VsphereCloudConfig", []string{
			`{}`,
			`{vcIp: "999.1.1.1", credentials: "A B", datacenters: ["a\nb", "a,b"], thumbprint: zz}`,
			`{vcIp: vc.site, datacenters: []}`,
		}, `{"spec":{"vcIp":"999.1.1.2","credentials":"c"}}`, "spec.vcIp"},
		"compatibilityconfigs": {"CompatibilityConfig", []string{`{}`}, "", ""},
	} {
		t.Run(k.kind, func(t *testing.T) {
			old := crd(t, plural)
			versions, _, err := unstructured.NestedSlice(old.Object, "spec", "versions")
			require.NoError(t, err)
			require.NoError(t, unstructured.SetNestedSlice(old.Object, unchecked(versions).([]any), "spec", "versions"))
			apply := func(u *unstructured.Unstructured) {
				require.NoError(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("admin"), client.ForceOwnership))
			}
			apply(old)
			var stored []*unstructured.Unstructured
			for _, spec := range append(k.shapes, nothing) {
				u := object(t, ns, k.kind, spec)
				if spec == nothing {
					delete(u.Object, "spec")
				}
				require.Eventually(t, func() bool { // the CRD takes a moment
					err := c.Create(t.Context(), u)
					return err == nil || !apierrors.IsInvalid(err)
				}, 30*time.Second, 50*time.Millisecond, spec)
				require.NotEmpty(t, u.GetUID(), spec)
				stored = append(stored, u)
			}
			apply(crd(t, plural))
			if k.change != "" {
				require.Eventually(t, func() bool {
					return apierrors.IsInvalid(c.Create(t.Context(), object(t, ns, k.kind, k.shapes[0]), client.DryRunAll))
				}, 30*time.Second, 50*time.Millisecond, "the rules are in force")
			}
			for _, u := range stored {
				keptAndDeleted(t, c, u, k.change, k.rule)
			}
		})
	}
}

// nothing is a resource without even a spec. It asks for nothing, so it need not be kept.
const nothing = "null"

func keptAndDeleted(t *testing.T, c client.Client, u *unstructured.Unstructured, change, rule string) {
	if _, exists := u.Object["spec"]; !exists {
		require.NoError(t, c.Delete(t.Context(), u))
		require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(u), u)), "gone, without a spec")
		return
	}
	spec, err := json.Marshal(u.Object["spec"])
	require.NoError(t, err)
	patch := func(what string, f func()) {
		before := u.DeepCopy()
		f()
		require.NoError(t, c.Patch(t.Context(), u, client.MergeFrom(before)), "%s: %s", what, spec)
	}
	patch("annotated", func() { u.SetAnnotations(map[string]string{"a": "b"}) })
	patch("finalizer put on", func() { controllerutil.AddFinalizer(u, "vdo.vmware.com/drivers") })
	if u.GetKind() != "CompatibilityConfig" {
		before := u.DeepCopy()
		require.NoError(t, unstructured.SetNestedField(u.Object, int64(1), "status", "observedGeneration"))
		require.NoError(t, c.Status().Patch(t.Context(), u, client.MergeFrom(before)), "status: %s", spec)
		err := c.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(change)))
		require.True(t, apierrors.IsInvalid(err), "%s: %v", spec, err)
		require.ErrorContains(t, err, rule)
	}
	require.NoError(t, c.Delete(t.Context(), u))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(u), u))
	patch("finalizer taken off", func() { controllerutil.RemoveFinalizer(u, "vdo.vmware.com/drivers") })
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(u), u)), "gone: %s", spec)
}
