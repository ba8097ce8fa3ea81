package vdoctl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

func TestWhatIsWrongWithASiteFileIsSaidWithItsLine(t *testing.T) {
	const config = "apiVersion: vdo.vmware.com/v1alpha1\nkind: VDOConfig\n"
	for text, want := range map[string]string{
		config + "spec:\n  suspend: maybe\n":                                                                `document 1: line 4: spec.suspend: expected true or false, got the text "maybe"`,
		"# none\n---\n" + config + "---\n" + config + "spec: {drivers: csi}\n":                              `document 3: line 8: spec.drivers: expected a list, got the text "csi"`,
		config + "spec:\n  drivers:\n  - {driver: csi}\n  - {driver: 7}\n":                                  `document 1: line 6: spec.drivers.driver: expected text, in quotes, got 7`,
		config + "spec: csi\n":                                                                              `document 1: line 3: spec: expected a mapping of keys, got text`,
		config + "metadata: {name: a, labels: {a: b,\n  c: true}}\n":                                        `document 1: line 4: metadata.labels: expected text, in quotes, got true or false`,
		config + "spec:\r\n  drivers:\r\n  - {driver: csi}\r\n  - {driver: a, to: b}\r\n":                   `document 1: line 6: unknown field "spec.drivers[1].to"`,
		config + "spec:\n  suspend: true\n  suspend: false\n":                                               `document 1: line 5: the key "suspend" is there twice`,
		config + "\tspec: {}\n":                                                                             `document 1: line 3: found a tab character that violates indentation`,
		"---\n- a\n":                                                                                        `document 1: line 2: it is a list, not a resource with apiVersion and kind`,
		`{"apiVersion": "vdo.vmware.com/v1alpha1", "kind": "VDOConfig",` + "\n" + `"spec": {"suspend": 1}}`: `document 1: line 2: spec.suspend: expected true or false, got 1`,
		"apiVersion: v1\nkind: Secret\nstringData: {username: a,\n password: 4711}\n":                       `document 1: line 4: stringData: expected text, in quotes, got a number`,
		"apiVersion: vdo.vmware.com/v1alpha1\nkind: VsphereCloudConfig\nspec:\n  vcIp: vc\n  port: \"443\"\n  datacenters: [/a]\n": `document 1: line 5: spec.port: expected a whole number, got the text "443"`,
		config + "spec:\n  drivers:\n  - {driver: csi}\n  interval: ten\n":                                                         `document 1: line 6: spec.interval: expected a duration, such as 90s, 10m or 1h30m, got the text "ten"`,
		config + "spec:\n  preflight:\n    interval: 5\n":                                                                          `document 1: line 5: spec.preflight.interval: expected a duration, such as 90s, 10m or 1h30m, got 5`,
		config + "spec:\n  upgradePolicy:\n    windows:\n    - {duration: 1h}\n    - {duration: 1 h}\n  interval: x\n":             `document 1: line 7: spec.upgradePolicy.windows[1].duration: expected a duration, such as 90s, 10m or 1h30m, got the text "1 h"; line 8: spec.interval: expected`,
		config + "metadata: {name: a, creationTimestamp: today}\n":                                                                 `document 1: line 3: metadata.creationTimestamp: expected a time, such as 2026-01-31T22:00:00Z, got text`,
		"apiVersion: v1\nkind: Secret\ndata: {username: YQ==,\n password: \"4711!\"}\n":                                            `document 1: line 4: data.password: expected base64; what is not encoded belongs under stringData, got text`,
		"apiVersion: vdo.vmware.com/v1alpha1\nkind: VsphereCloudConfig\nspec: {vcIp: vc, port: 4430000000}\n":                      `document 1: line 3: spec.port: expected a whole number of at most 2147483647, got 4430000000`,
		config + "---\napiVersion: vdo.vmware.com/v1alpha1\nkind: VsphereCloudConfigList\nitems: []\n":                             `document 2: it is a VsphereCloudConfigList, of which nothing is read`,
		"apiVersion: vdo.vmware.com/v1alpha1\nkind: VsphereCloudConfig\nspec: {vcIp: vc, port: 443.5}\n":                           `document 1: line 3: spec.port: expected a whole number, got 443.5`,
	} {
		_, err := parseSite("site.yaml", []byte(text), "ns")
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "Go ", text)
		require.NotContains(t, err.Error(), "4711", "a password")
	}
}

// Of what is in a file twice one would count, and nobody would see which.
func TestWhatIsInASiteFileTwiceIsRefused(t *testing.T) {
	const (
		config  = "apiVersion: vdo.vmware.com/v1alpha1\nkind: VDOConfig\nmetadata: {name: NAME}\n"
		vcenter = "apiVersion: vdo.vmware.com/v1alpha1\nkind: VsphereCloudConfig\nmetadata: {name: NAME}\nspec: {vcIp: vc, datacenters: [/a]}\n"
		bundle  = "apiVersion: vdo.vmware.com/v1alpha1\nkind: DriverBundle\nmetadata: {name: NAME}\nspec: {reference: \"mirror.site/vdo:NAME\"}\n"
		secret  = "apiVersion: v1\nkind: Secret\nmetadata: {name: NAME}\n"
		list    = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n"
	)
	file := func(docs ...string) string { return "# a site\n" + strings.Join(docs, "---\n") }
	named := func(doc, name string) string { return strings.ReplaceAll(doc, "NAME", name) }
	in := func(doc, namespace string) string {
		return strings.ReplaceAll(doc, "}\n", ", namespace: "+namespace+"}\n")
	}
	for text, want := range map[string]string{
		file(named(config, "a"), named(config, "b")):                                         "document 2: line 6: a second VDOConfig: a cluster has one, and VDOConfig a is in document 1, line 2",
		file(named(config, "a"), "# none\n", named(config, "a")):                             "document 3: line 8: VDOConfig a is there twice: the first is in document 1, line 2",
		file(named(config, "a"), named(vcenter, "b"), named(vcenter, "b")):                   "document 3: line 11: VsphereCloudConfig b is there twice: the first is in document 2, line 6",
		file(named(config, "a"), named(bundle, "b"), named(bundle, "b")):                     "document 3: line 11: DriverBundle b is there twice: the first is in document 2, line 6",
		file(named(config, "a"), named(bundle, "b"), named(bundle, "c")):                     "it has 2 DriverBundles, and does not say which of them counts: DriverBundle b in document 2, line 6; DriverBundle c in document 3, line 11",
		file(named(config, "a"), in(named(secret, "b"), "ns"), in(named(secret, "b"), "ns")): "document 3: line 10: Secret ns/b is there twice: the first is in document 2, line 6",
		file(named(config, "a"), list):                                                       "document 2: item 2: ConfigMap a is there twice: the first is in document 2, item 1",
	} {
		_, err := parseSite("site.yaml", []byte(text), "ns")
		require.ErrorContains(t, err, want, text)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
	}
	names := named(config, "a") + "spec: {bundle: {name: c}}\n"
	for _, text := range []string{
		file(names, named(bundle, "b"), named(bundle, "c")),
		file(in(named(config, "a"), "ns"), named(bundle, "b"), strings.ReplaceAll(named(bundle, "c"), "{name: c}", "{name: c, namespace: ns}")),
		file(names, named(bundle, "c"), in(named(secret, "b"), "ns"), named(secret, "b")),
	} {
		read, err := parseSite("site.yaml", []byte(text), "ns")
		require.NoError(t, err, text)
		require.Equal(t, "c", read.bundle.Name, text)
	}
	read, err := parseSite("site.yaml", []byte(file(names, in(named(secret, "b"), "ns"), named(secret, "b"))), "ns")
	require.NoError(t, err)
	require.ErrorContains(t, read.within("ns"), "Secret b: it is there twice: without a namespace in document 3, line 11, and with ns in document 2, line 7")
	require.NoError(t, read.within("other"))
}

// A file of a site has the bundles of other operators beside, in the namespaces where these read them.
func TestASiteFileMayHaveBundlesOfOtherOperators(t *testing.T) {
	const (
		of      = "apiVersion: vdo.vmware.com/v1alpha1\n"
		vcenter = of + "kind: VsphereCloudConfig\nmetadata: {name: vc}\nspec: {vcIp: vc, datacenters: [/a]}\n"
		config  = of + "kind: VDOConfig\nmetadata: {name: vdo}\n"
		drivers = of + "kind: DriverBundle\nmetadata: {name: drivers}\nspec: {reference: \"mirror.site/vdo:1\"}\n"
		other   = of + "kind: DriverBundle\nmetadata: {name: services, namespace: vmware-system-sip}\nspec: {reference: \"mirror.site/sip:1\"}\n"
	)
	in := func(doc string) string {
		return strings.Replace(doc, "}\n", ", namespace: vmware-system-vdo}\n", 1)
	}
	names := config + "spec: {bundle: {name: drivers}}\n"
	for _, docs := range [][]string{
		{in(config), in(drivers), other},
		{in(config), drivers, other},
		{config, in(drivers), other},
		{config, drivers, other},
		{names, in(drivers), other},
		{names, in(drivers), strings.Replace(other, "services", "drivers", 1)},
		{vcenter, in(drivers), other},
		{vcenter, drivers, other},
		{in(vcenter), in(drivers), other},
	} {
		text := strings.Join(docs, "---\n")
		read, err := parseSite("site.yaml", []byte(text), "vmware-system-vdo")
		require.NoError(t, err, text)
		require.NoError(t, read.within("vmware-system-vdo"), text)
		read.moveTo("vmware-system-vdo")
		require.Equal(t, "DriverBundle vmware-system-vdo/drivers", describeObject(read.bundle), text)
		require.Len(t, read.bundles, 2)
		require.Equal(t, "vmware-system-sip", read.bundles[1].Namespace)
	}
	for want, docs := range map[string][]string{
		"it has 2 DriverBundles, and does not say which of them counts": {config, in(drivers), strings.Replace(in(drivers), "drivers", "more", 1), "# none\n"},
		"DriverBundle vmware-system-sip/services in document 2":         {config, other, strings.Replace(other, "services", "more", 1)},
	} {
		_, err := parseSite("site.yaml", []byte(strings.Join(docs, "---\n")), "vmware-system-vdo")
		require.ErrorContains(t, err, want)
	}
	read, err := parseSite("site.yaml", []byte(config+"---\n"+other), "vmware-system-vdo")
	require.NoError(t, err)
	require.ErrorContains(t, read.within("vmware-system-vdo"), "it is of namespace vmware-system-sip", "alone, it is a slip")
}
