package vdoctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// Of what is in a file twice one would count, and no one would see which.
func TestWhatIsWrongWithASiteFileIsSaidWithItsDocument(t *testing.T) {
	const (
		of     = "apiVersion: vdo.vmware.com/v1alpha1\n"
		config = of + "kind: VDOConfig\n"
		bundle = "---\n" + of + "kind: DriverBundle\nspec: {reference: \"mirror.site/vdo:1\"}\nmetadata: "
		secret = "---\napiVersion: v1\nkind: Secret\nmetadata: "
		item   = "- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n"
	)
	for text, want := range map[string]string{
		"# none\n---\n" + config + "---\n" + config + "spec: {drivers: csi}\n": `document 3: spec.drivers must be of type array`,
		config + "spec: {upgrade: automatic}\n":                                `document 1: spec.upgrade should be one of \[Automatic Manual\]`,
		strings.Replace(config, "VDOConfig", "VsphereCloudConfig", 1) +
			"spec: {vcIp: a, port: \"37101\"}\n": `document 1: spec.port must be of type integer: "string"`,
		config + "spec:\r\n  drivers:\r\n  - {driver: csi, to: b}\r\n": `document 1: .*unknown field "spec.drivers\[0\].to"`,
		config + "spec:\n  suspend: true\n  suspend: false\n":          `(?s)document 1: .*line 5: .*"suspend"`,
		config + "\tspec: {}\n":                                        `document 1: .*line 3: found a tab character`,
		"---\n- a\n":                                                   `document 1: it is no Kubernetes manifest`,
		"some notes\n":                                                 `document 1: it is no Kubernetes manifest`,
		"-----BEGIN PUBLIC KEY-----\n4711\n-----END PUBLIC KEY-----\n": `read site.yaml: it is no YAML file with a VDOConfig or`,
		"apiVersion: v1\nkind: Secret\nstringData: {username: a,\n password: 4711}\n":   `document 1: .*stringData of type string`,
		"apiVersion: v1\nkind: Secret\ndata: {username: YQ==,\n password: \"4711!\"}\n": `document 1: .*illegal base64 data`,
		config + "---\napiVersion: vdo.vmware.com/v1alpha1\nkind: VDOConfigList\n" +
			"items: [{metadata: {name: a}}]\n": `document 2: write a VDOConfigList as a List`,
		config + "metadata: {name: a}\n---\n" + config + "metadata: {name: b}\n": `document 2: a second VDOConfig: ` +
			`a cluster has one, and VDOConfig ns/a is there`,
		config + bundle + "{name: b}\n" + bundle + "{name: c}\n": `document 3: a second DriverBundle: ` +
			`the drivers are from one, and DriverBundle ns/b is there`,
		strings.Replace(config+bundle+"{name: b}\n", "mirror.site/", "", 1):     `document 2: .*it names no registry`,
		config + secret + "{name: b, namespace: ns}\n" + secret + "{name: b}\n": `document 3: Secret ns/b is there twice`,
		config + "---\napiVersion: v1\nkind: List\nitems:\n" + item + item:      `document 3: ConfigMap ns/a is there twice`,
	} {
		_, err := parseSite("site.yaml", []byte(text), "ns")
		require.Regexp(t, want, err, text)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
		require.NotContains(t, err.Error(), "4711", "a password or a key")
	}
}

// Documents of a site's file.
const (
	ofVDO      = "apiVersion: vdo.vmware.com/v1alpha1\n"
	vcenterDoc = ofVDO + "kind: VsphereCloudConfig\nmetadata: {name: vc}\nspec: {vcIp: vc.site, credentials: vc}\n"
	configDoc  = ofVDO + "kind: VDOConfig\nmetadata: {name: vdo}\n"
	driversDoc = ofVDO + "kind: DriverBundle\nmetadata: {name: drivers}\nspec: {reference: \"mirror.site/vdo:1\"}\n"
)

// A file of a site has the bundles of other operators beside, in the namespaces where these read them.
func TestASiteFileMayHaveBundlesOfOtherOperators(t *testing.T) {
	const other = ofVDO + "kind: DriverBundle\nmetadata: {name: services, namespace: vmware-system-sip}\nspec: {reference: \"mirror.site/sip:1\"}\n"
	in := func(doc string) string {
		return strings.Replace(doc, "}\n", ", namespace: vmware-system-vdo}\n", 1)
	}
	names := configDoc + "spec: {bundle: {name: drivers}}\n"
	for _, docs := range [][]string{
		{in(configDoc), in(driversDoc), other},
		{configDoc, driversDoc, other},
		{names, in(driversDoc), strings.Replace(other, "services", "drivers", 1)},
		{vcenterDoc, in(driversDoc), other},
		{in(configDoc), in(driversDoc), "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: vmware-system-vdo}}\n"},
	} {
		text := strings.Join(docs, "---\n")
		read, err := parseSite("site.yaml", []byte(text), "vmware-system-vdo")
		require.NoError(t, err, text)
		require.NoError(t, read.within(), text)
		require.Equal(t, "DriverBundle vmware-system-vdo/drivers", describeObject(read.bundle), text)
	}
	text := strings.Replace(names, "name: drivers", "name: others", 1) + "---\n" + driversDoc
	another := must.Have(parseSite("site.yaml", []byte(text), "vmware-system-vdo"))(t)
	require.ErrorContains(t, another.within(), "VDOConfig vmware-system-vdo/vdo names another one, others")
	read := must.Have(parseSite("site.yaml", []byte(configDoc+"---\n"+other), "vmware-system-vdo"))(t)
	require.Nil(t, read.bundle, "it is another operator's")
	text = strings.Replace(configDoc, "vdo}", "vdo, namespace: default}", 1)
	read = must.Have(parseSite("site.yaml", []byte(text), "ns"))(t)
	require.ErrorContains(t, read.within(), "VDOConfig default/vdo: it is of namespace default")
}

// Manifests do not say where the bundle is: a DriverBundle without a reference would be refused after the installation.
func TestDeployNeedsToKnowTheBundle(t *testing.T) {
	file := filepath.Join(t.TempDir(), "site.yaml")
	require.NoError(t, os.WriteFile(file, []byte(configDoc+"spec: {bundle: {name: ours}}\n"), 0o600))
	o := &deployOptions{app: &app{}, site: file}
	o.cluster.namespace = "ns"
	require.ErrorContains(t, must.Err(o.configuration(t.Context(), "")), "it has no DriverBundle")
	objects := must.Have(o.configuration(t.Context(), "mirror.site/vdo:1"))(t)
	require.Equal(t, []string{"DriverBundle ns/ours", "VDOConfig ns/vdo"}, described(objects))
	// As `configure --from-file` writes it: otherwise the two would change it back and forth.
	ours := strings.Replace(driversDoc, "name: drivers", "name: ours", 1)
	require.NoError(t, os.WriteFile(file, []byte(configDoc+"---\n"+ours), 0o600))
	objects = must.Have(o.configuration(t.Context(), ""))(t)
	spec := objects[1].(*unstructured.Unstructured).Object["spec"] //nolint:forcetypeassert // it is
	require.Equal(t, map[string]any{"bundle": map[string]any{"name": "ours"}}, spec)
	c := newConfigure(o.app)
	c.cluster.namespace, c.file = "ns", file
	d := must.Have(c.begin())(t)
	d.makeMissing()
	c.offer(d)
	require.True(t, c.mode, "it stays unset")
}

// The password of an administrator in the environment, and an account in the site's file, would take the place
// of the account that users create made.
func TestDeployTakesAnAccountFromOneFile(t *testing.T) {
	const (
		site   = vcenterDoc + "---\n" + configDoc + "---\n" + driversDoc
		secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: vc, namespace: ns}\nstringData: {username: a@b, password: own}\n"
	)
	for name, x := range map[string]struct {
		site, made string // files
		password   string // of the configuration, in base64; "" for no Secret
		reason     fault.Reason
	}{
		"none":           {site: site},
		"in the file":    {site: site + secret, password: "b3du"},
		"made":           {site: site, made: secret},
		"the same twice": {site: site + secret, made: secret, password: "b3du"},
		"two":            {site: site + secret, made: strings.Replace(secret, "own", "made", 1), reason: fault.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "site.yaml")
			require.NoError(t, os.WriteFile(file, []byte(x.site), 0o600))
			require.NoError(t, os.WriteFile(accountFileName(file), []byte(x.made), 0o600))
			a := &app{getenv: func(string) (string, bool) { return "of an administrator", true }}
			a.cluster.namespace = "ns"
			objects, err := (&deployOptions{app: a, site: file}).configuration(t.Context(), "")
			require.Equal(t, x.reason, fault.ReasonOf(err), err)
			_, err = (&siteFlags{file: file}).fileSite(a)
			require.Equal(t, x.reason, fault.ReasonOf(err), err)
			password := ""
			for _, o := range objects {
				if u, ok := o.(*unstructured.Unstructured); ok && kindOf(o) == "Secret" {
					password, _, err = unstructured.NestedString(u.Object, "data", "password")
					require.NoError(t, err)
				}
			}
			require.Equal(t, x.password, password)
		})
	}
}

func TestHintsReadTheFileToo(t *testing.T) {
	f := &siteFlags{file: "my site.yaml"}
	for hint, want := range map[string]string{
		"see `vdoctl nodes check`":                          "see `vdoctl nodes check -f 'my site.yaml'`",
		"`vdoctl users create -f FILE --username ADMIN`":    "`vdoctl users create -f 'my site.yaml' --username ADMIN`",
		"vdoctl users delete --secret a, or rotate":         "vdoctl users delete -f 'my site.yaml' --secret a, or rotate",
		"what users create made; vdoctl users plan -o govc": "what users create made; vdoctl users plan -f 'my site.yaml' -o govc",
	} {
		require.Equal(t, want, f.ofFile(hint))
	}
}

// The API server drops a key without a value; a draft may have one.
func TestADraftMayHaveKeysWithoutAValue(t *testing.T) {
	require.NoError(t, checkSchema("VDOConfig", []byte("spec:\n  upgradePolicy:\n  drivers:\n  suspend: true\n")))
	require.NoError(t, checkSchema("VsphereCloudConfig", []byte("spec: {vcIp: \"\", credentials: }\n")))
}
