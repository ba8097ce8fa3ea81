package vdoctl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

func TestWhatIsWrongWithASiteFileIsSaidWithItsDocument(t *testing.T) {
	const config = "apiVersion: vdo.vmware.com/v1alpha1\nkind: VDOConfig\n"
	for text, want := range map[string]string{
		"# none\n---\n" + config + "---\n" + config + "spec: {drivers: csi}\n": `document 3: .*spec.drivers of type`,
		config + "spec:\r\n  drivers:\r\n  - {driver: a, to: b}\r\n":           `document 1: .*unknown field "spec.drivers\[0\].to"`,
		config + "spec:\n  suspend: true\n  suspend: false\n":                  `(?s)document 1: .*line 5: .*"suspend"`,
		config + "\tspec: {}\n": `document 1: .*line 3: found a tab character`,
		"---\n- a\n":            `document 1: .*no apiVersion and kind`,
		"apiVersion: v1\nkind: Secret\nstringData: {username: a,\n password: 4711}\n":   `document 1: .*stringData of type string`,
		"apiVersion: v1\nkind: Secret\ndata: {username: YQ==,\n password: \"4711!\"}\n": `document 1: .*illegal base64 data`,
		config + "---\napiVersion: vdo.vmware.com/v1alpha1\nkind: VDOConfigList\n" +
			"items: [{metadata: {name: a}}]\n": `document 2: a second VDOConfig`,
	} {
		_, err := parseSite("site.yaml", []byte(text), "ns")
		require.Regexp(t, want, err, text)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
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
		file(named(config, "a"), named(config, "b")):                                         "document 2: a second VDOConfig: a cluster has one, and VDOConfig a is in document 1",
		file(named(config, "a"), "# none\n", named(config, "a")):                             "document 3: VDOConfig a is there twice: the first is in document 1",
		file(named(config, "a"), named(vcenter, "b"), named(vcenter, "b")):                   "document 3: VsphereCloudConfig b is there twice: the first is in document 2",
		file(named(config, "a"), named(bundle, "b"), named(bundle, "b")):                     "document 3: DriverBundle b is there twice: the first is in document 2",
		file(named(config, "a"), named(bundle, "b"), named(bundle, "c")):                     "it has 2 DriverBundles, and does not say which of them counts: DriverBundle b in document 2; DriverBundle c in document 3",
		file(named(config, "a"), in(named(secret, "b"), "ns"), in(named(secret, "b"), "ns")): "document 3: Secret ns/b is there twice: the first is in document 2",
		file(named(config, "a"), list):                                                       "document 2: ConfigMap a is there twice: the first is in document 2",
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
	require.ErrorContains(t, read.within("ns"), "Secret b: it is there twice: without a namespace in document 3, and with ns in document 2")
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
	require.ErrorContains(t, read.within("vmware-system-vdo"),
		"it is of namespace vmware-system-sip", "alone, it is a slip")
}
