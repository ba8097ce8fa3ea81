package vdoctl

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
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
	require.NoError(t, c.chosen(t.Context(), d))
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

// The API server drops a key without a value; a draft may have one.
func TestADraftMayHaveKeysWithoutAValue(t *testing.T) {
	require.NoError(t, checkSchema("VDOConfig", []byte("spec:\n  upgradePolicy:\n  drivers:\n  suspend: true\n")))
	require.NoError(t, checkSchema("VsphereCloudConfig", []byte("spec: {vcIp: \"\", credentials: }\n")))
}

// A linked vCenter may have a new password late. Then it is tried there again.
func TestAPasswordIsTriedAgain(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	o := &accountOptions{usersOptions: usersOptions{app: &app{logins: &logins.Logins{}, now: time.Now}}}
	in := &site{app: o.app, preferAsked: true, reader: &accountFile{made: &objects{}}}
	in.login = func(context.Context, string, vcenter.Target) (credentials.Credentials, error) {
		a := vcsim.Administrator
		return credentials.Credentials{Username: a.Username, Password: a.Password}, nil
	}
	config := &v1alpha1.VsphereCloudConfig{}
	config.Spec = v1alpha1.VsphereCloudConfigSpec{VcIP: v.Host, Port: int32(v.Port), Thumbprint: v.SHA256}
	ask := func(string) vcenter.Ask { return vcenter.Ask{} }
	p := must.Have(o.place(t.Context(), in, configured{config: config}, ask))(t)
	defer o.open[0].Close()
	late := accounts.Login{Username: vcsim.Admin.Username, Password: "late"}
	require.Equal(t, fault.Unauthorized, fault.ReasonOf(must.Err(p.Verify(t.Context(), late))))
	v.SetPassword(late.Username, string(late.Password))
	must.Have(p.Verify(t.Context(), late))(t)
}

// Two runs read the file before either writes: logins, a question and the verifying lie between. None takes from it
// what the other one has written. Only the owner reads it.
func TestTwoRunsKeepEachOthersAccounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "site.yaml")
	open := func() *accountFile { return must.Have(accountsOf(file))(t) }
	record := func(name string) *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: metaOf("ns", name)} }
	require.NoError(t, os.WriteFile(accountFileName(file), nil, 0o644))
	one, other := open(), open()
	require.NoError(t, one.Create(t.Context(), record("east")))
	info := must.Have(os.Stat(one.name))(t)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, other.Create(t.Context(), record("west")))
	require.True(t, apierrors.IsAlreadyExists(other.Create(t.Context(), record("east"))))
	for range 2 {
		require.NoError(t, one.Create(t.Context(), &corev1.Secret{ObjectMeta: metaOf("ns", "west")}))
	}
	require.NoError(t, one.Update(t.Context(), record("east")))
	all := []string{"Secret ns/west", "ConfigMap ns/east", "ConfigMap ns/west"}
	require.ElementsMatch(t, all, described(open().made.values()))

	deploys := open()
	require.NoError(t, other.Delete(t.Context(), record("west")))
	require.Equal(t, fault.Conflict, fault.ReasonOf(deploys.remove()), "it moves what it has read, and no more")
	require.ElementsMatch(t, []string{"Secret ns/west", "ConfigMap ns/east"}, described(open().made.values()))
	require.NoError(t, one.Delete(t.Context(), record("east")))
	require.NoError(t, one.Delete(t.Context(), &corev1.Secret{ObjectMeta: metaOf("ns", "west")}))
	require.NoFileExists(t, one.name)
}

// siteFile is a file that configure writes, without a cluster and a vCenter.
type siteFile struct {
	t    *testing.T
	name string
}

func (f siteFile) put(text string) {
	require.NoError(f.t, os.WriteFile(f.name, []byte(text), 0o600))
}

func (f siteFile) text() string {
	return string(must.Have(os.ReadFile(f.name))(f.t))
}

func (f siteFile) configure(args ...string) *objects {
	var out bytes.Buffer
	a := &app{out: &out, err: &out, getenv: func(string) (string, bool) { return "", false }}
	code := a.run(f.t.Context(), append([]string{"configure", "--no-check", "-o", f.name}, args...))
	require.Zero(f.t, code, out.String())
	require.NotContains(f.t, out.String(), "canary")
	return must.Have(parseSite(f.name, []byte(f.text()), operatorNamespace))(f.t)
}

func (o *objects) configMap(name string) *corev1.ConfigMap {
	return o.all["ConfigMap "+operatorNamespace+"/"+name].(*corev1.ConfigMap)
}

// byAuthority are the flags that answer all questions about a vCenter whose certificate is checked by an authority.
func byAuthority(t *testing.T, name, ca string, more ...string) []string {
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, []byte(ca), 0o600))
	return append([]string{"--bundle", "registry.site/vdo/drivers:1", "--vcenter", name, "--server", name + ".site",
		"--username", "vdo@vsphere.local", "--vcenter-ca-file", file}, more...)
}

// The help says: run it once for each vCenter, with -o site.yaml. All of them are in the file then, without a cluster
// too, and what a person has put into it besides: a site may delete what is no longer in its file.
func TestConfigureAddsEachVCenterToAFile(t *testing.T) {
	east, west := string(pki.Root(t, "east").PEM()), string(pki.Root(t, "west").PEM())
	file := siteFile{t, filepath.Join(t.TempDir(), "site.yaml")}
	toWest := byAuthority(t, "west", west)
	has := func(in *objects, objects int) {
		require.Len(t, in.all, objects)
		for i, name := range []string{"east", "west"} {
			require.Equal(t, name+".site", in.vcenters[i].Spec.VcIP)
			require.Equal(t, []string{east, west}[i], in.configMap(name + "-ca").Data["ca.crt"])
		}
		require.Equal(t, "registry.site/vdo/drivers:1", in.bundle.Spec.Reference)
		require.Equal(t, []string{"east", "west"}, in.config.Spec.CloudProvider.VsphereCloudConfigs)
		require.Equal(t, []string{"west"}, in.config.Spec.StorageProvider.VsphereCloudConfigs)
		require.Equal(t, "east", in.config.Spec.StorageProvider.VsphereCloudConfig)
	}
	file.configure(byAuthority(t, "east", east, "--region-category", "k8s-region", "--zone-category", "k8s-zone")...)
	file.configure("--vcenter", "east", "--server", "mistyped.site", "--yes") // it has no account yet
	file.configure("--vcenter", "east", "--server", "east.site", "--yes")
	has(file.configure(append(toWest, "--yes")...), 6)
	file.configure(toWest...) // it says the same: nothing to consent to

	text := file.text()
	for of, with := range map[string]string{
		`(kind: ConfigMap\nmetadata:\n  name: west-ca)`: "immutable: true\nbinaryData: {der: YQ==}\n$1\n  annotations: {a: " +
			strings.Repeat("b", 200) + "}",
		`(kind: VDOConfig\nmetadata:\n)`: "$1  labels: {app: vdo}\n",
		`(storageProvider:\n)`:           "$1    webhook: true\n",
	} {
		text = regexp.MustCompile(of).ReplaceAllString(text, with)
	}
	rest := `---
apiVersion: v1
kind: Secret
metadata: {name: east-account}
stringData: {username: a@b, password: canary}
---
apiVersion: example.com/v1
kind: Thing
metadata: {name: one}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: DriverBundle
metadata: {name: services, namespace: vmware-system-sip}
spec: {reference: registry.site/sip:1}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: north}
spec: {vcIp: vc, credentials: north-account, datacenters: [/other]}
`
	file.put(text + strings.ReplaceAll(rest, "\n", "\r\n"))
	require.NoError(t, os.Chmod(file.name, 0o600))
	other := siteFile{t, filepath.Join(t.TempDir(), "other.yaml")}
	other.put(text)
	file.configure("--vcenter", "west", "--upgrade", "Manual", "--yes") // no account goes into it
	toEast := []string{"--vcenter", "east", "--username", "vdo@vsphere.local", "--upgrade", "Manual", "--yes"}
	file.configure(toEast...)
	in := file.configure(append(toEast, "--from-file", other.name)...)
	has(in, 10)
	require.Contains(t, file.text(), "kind: Thing")
	info := must.Have(os.Stat(file.name))(t)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it has a password")
	require.Equal(t, v1alpha1.UpgradeManual, in.config.Spec.Upgrade)
	require.True(t, in.config.Spec.StorageProvider.Webhook)
	require.Equal(t, map[string]string{"app": "vdo"}, in.config.Labels)
	ca := in.configMap("west-ca")
	require.Equal(t, strings.Repeat("b", 200), ca.Annotations["a"])
	require.Equal(t, []byte("a"), ca.BinaryData["der"])
	require.True(t, *ca.Immutable)
	account := in.all["Secret "+operatorNamespace+"/east-account"].(*corev1.Secret)
	require.Equal(t, "canary", string(account.Data["password"]))
}

func TestConfigureRunsAgainOnItsFile(t *testing.T) {
	east, west := pki.Root(t, "east").PEM(), string(pki.Root(t, "west").PEM())
	file := siteFile{t, filepath.Join(t.TempDir(), "site.yaml")}
	of := file.configure(byAuthority(t, "east", string(east))...).configMap("east-ca")

	// As `kubectl create configmap --from-file` makes it, with labels and keys of others, which stay.
	_, rest, _ := strings.Cut(file.text(), "---\napiVersion: vdo")
	of.BinaryData, of.Data = map[string][]byte{"ca.crt": east}, map[string]string{"further": "a"}
	of.Labels = map[string]string{"app": "vdo"}
	data := must.Have(yaml.Marshal(of))(t)
	file.put(string(data) + "---\napiVersion: vdo" + rest)
	ca := file.configure(byAuthority(t, "east", west, "--yes")...).configMap("east-ca")
	require.Equal(t, map[string]string{"ca.crt": west, "further": "a"}, ca.Data)
	require.Empty(t, ca.BinaryData)
	require.Equal(t, map[string]string{"app": "vdo"}, ca.Labels)

	// A thumbprint is of one certificate. A vCenter that was to accept any one does so until another is requested.
	all := byAuthority(t, "east", west, "--yes")
	thumbprint := strings.Repeat("AA:", 31) + "AA"
	all[slices.Index(all, "--vcenter-ca-file")], all[len(all)-2] = "--thumbprint", thumbprint
	file.configure(all...)
	alone := file.text()
	both := strings.Replace(alone, "  vcIp:", "  ca: {configMap: east-ca}\n  vcIp:", 1)
	pinned := strings.Replace(alone, "  vcIp:", "  insecure: true\n  vcIp:", 1)
	anyOne := regexp.MustCompile(`(?m)^  thumbprint: .*\n`).ReplaceAllString(pinned, "")
	for _, c := range []struct {
		text, flag, value string
		accepts           bool
		thumbprint        string
	}{
		{both, "--upgrade", "Manual", false, thumbprint},
		{alone, "--upgrade", "Manual", false, thumbprint}, {alone, "--server", "other.site", false, ""},
		{anyOne, "--upgrade", "Manual", true, ""}, {anyOne, "--server", "other.site", false, ""},
		{pinned, "--server", "other.site", false, ""},
		{anyOne, "--thumbprint", "", false, ""}, {pinned, "--thumbprint", "", false, ""},
	} {
		file.put(c.text)
		spec := file.configure("--username", "vdo@vsphere.local", "--yes", c.flag, c.value).vcenters[0].Spec
		require.Equal(t, c.accepts, spec.AnyCertificate(), "%s\n%s", c.flag, c.text)
		require.Equal(t, c.thumbprint, spec.Thumbprint)
		require.Equal(t, c.text == both, spec.CA != nil)
	}
}
