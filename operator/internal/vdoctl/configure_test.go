package vdoctl_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// answersFor are the flags that answer all questions about a vCenter.
func answersFor(t *testing.T, v *vcsim.VCenter, password string) []string {
	t.Helper()
	file := fileOf(t, "password", password+"\n")
	return []string{"configure", "--bundle", "registry.site/vdo/drivers:1", "--server", v.Host, "--port", portOf(v), "--thumbprint", v.SHA256,
		"--username", vcsim.Admin.Username, "--password-file", file, "--datacenters", "/site/prod/east,/lab"}
}

func (s *shop) vcenter(name string) *v1alpha1.VsphereCloudConfig {
	return got(s, &v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta(name)})
}

func TestConfigureByFlags(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, west := vcenters(t)
	all := answersFor(t, east, vcsim.Admin.Password)

	s.run("configure", "--vcenter", "West 1", "--server", "https://vc/", "--yes").is(2, `--vcenter "West 1": not lower-case`, `--server "https://vc/": `, `--bundle "": `) // all at once
	for _, want := range []struct {
		flag, value string
		code        int
		text        string
	}{
		{"--datacenters", "/no/such", 4, "hint: correct --datacenters"},
		{"--thumbprint", west.SHA256, 5, "set --thumbprint to the new one"},
		{"--port", "1", 5, "hint: correct --server and --port"},
	} {
		args := slices.Concat(all, []string{want.flag, want.value, "--yes", "--dry-run"})
		s.run(args...).is(want.code, want.text)
	}
	out := s.run(append(answersFor(t, east, "canary-wrong"), "--yes")...).is(6)
	require.NotContains(t, out, "canary")
	require.Contains(t, out, "hint: correct --username, or its password: --password-file")
	require.False(t, s.there(&v1alpha1.VDOConfig{ObjectMeta: s.meta("vdo")}), "nothing was written")

	s.run(all...).is(8, "no terminal to ask")
	require.Contains(t, s.ok(append(all[:len(all):len(all)], "--dry-run")...), "Nothing was changed")
	out = s.run(append(all[:len(all):len(all)], "--yes")...).is(0, "password: (hidden)")
	require.NotContains(t, out, vcsim.Admin.Password)
	require.Equal(t, "registry.site/vdo/drivers:1", s.bundle().Spec.Reference)
	require.Equal(t, []string{"/site/prod/east", "/lab"}, s.vcenter("vcenter").Spec.Datacenters)
	require.Equal(t, []string{"vcenter"}, s.config().Spec.CloudProvider.VsphereCloudConfigs)
	require.Equal(t, "vcenter", s.config().Spec.StorageProvider.VsphereCloudConfig)
	secret := got(s, &corev1.Secret{ObjectMeta: s.meta("vcenter-account")})
	require.Equal(t, vcsim.Admin.Password, string(secret.Data["password"]))

	// The account of one vCenter goes to no other one.
	s.run("configure", "--server", "vc.site", "--yes").is(2, "--username", "is of "+east.Host)

	// A second run has nothing to do; one with other answers changes those alone.
	require.Contains(t, s.ok("configure", "--yes"), "all is as asked already")
	v := s.config()
	v.Spec.StorageProvider.Webhook = true
	require.NoError(t, s.k.Update(t.Context(), v))
	out = s.run("configure", "--upgrade", "Manual", "--yes").is(0, "spec.upgrade: Automatic -> Manual")
	require.NotContains(t, out, "Secret")
	require.True(t, s.config().Spec.StorageProvider.Webhook, "what is not asked for stays")
	s.run(append(answersFor(t, west, vcsim.Admin.Password), "--vcenter", "west", "--region-category", "r", "--zone-category", "z", "--yes")...).
		is(0, "`vdoctl topology tag --username ADMIN")
	require.Equal(t, []string{"vcenter", "west"}, s.config().Spec.CloudProvider.VsphereCloudConfigs)
	require.Equal(t, []string{"west"}, s.config().Spec.StorageProvider.VsphereCloudConfigs)
	require.Equal(t, []string{"r", "z"}, s.config().Spec.StorageProvider.TopologyCategories)
	require.Equal(t, "west-account", s.vcenter("west").Spec.Credentials, "an account of its own")
	require.Equal(t, "vcenter-account", s.vcenter("vcenter").Spec.Credentials)
}

func TestConfigureWritesFilesForGitOpsAndReadsThem(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	all := append(answersFor(t, east, vcsim.Admin.Password), "-o", file)
	out := s.ok(all...)
	require.Contains(t, out, "Written: "+file+"\n")
	require.Contains(t, out, "The account goes to the Secret vcenter-account in namespace "+s.ns+". Its type is kubernetes.io/basic-auth")
	text := readFile(t, file)
	for _, kind := range []string{"kind: DriverBundle", "kind: VsphereCloudConfig", "kind: VDOConfig"} {
		require.Contains(t, text, kind)
	}
	require.NotContains(t, text, vcsim.Admin.Password)
	require.NotContains(t, text, "kind: Secret")

	// A file that is there is replaced with consent alone, and by no dry run.
	s.ok(all...)
	require.NoError(t, os.WriteFile(file, []byte(text+"# kept\n"), 0o600))
	out = s.run(all...).is(8, file)
	require.NotContains(t, out, "The account goes", "nothing was written")
	s.run(append(all[:len(all):len(all)], "--dry-run")...).is(2)
	require.Equal(t, text+"# kept\n", readFile(t, file))
	s.ok(append(all[:len(all):len(all)], "--yes")...)
	require.Equal(t, text, readFile(t, file))

	require.NoError(t, os.WriteFile(file, nil, 0o600))
	s.ok(append(all[:len(all):len(all)], "--yes")...)
	require.Equal(t, text, readFile(t, file))

	require.False(t, s.there(&v1alpha1.VDOConfig{ObjectMeta: s.meta("vdo")}), "nothing was written to the cluster")
	password := all[12]
	require.Equal(t, "--password-file", all[11])
	apply := []string{"configure", "--from-file", file, "--username", vcsim.Admin.Username,
		"--password-file", password, "--upgrade", "Manual", "-o"}
	s.run(append(apply, "name", "--dry-run")...).is(0, "\nvdoconfig/vdo\n")
	s.run(append(apply, "json", "--yes")...).is(0, "spec.upgrade")
	require.Equal(t, v1alpha1.UpgradeManual, s.config().Spec.Upgrade)
	require.Equal(t, east.SHA256, s.vcenter("vcenter").Spec.Thumbprint)
	s.run("configure", "--from-file", filepath.Join(t.TempDir(), "none.yaml"), "--yes").is(4)
}

// A file may hold all that a site applies: no one is asked what is in it, and all that its vCenters and bundle need is
// written. What the cluster has beside is kept, and what is not asked for is not made.
func TestConfigureTakesAllOfAFile(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, west := vcenters(t)
	account := func(name string) string {
		return fmt.Sprintf("- {apiVersion: v1, kind: Secret, metadata: {name: %s}, stringData: {username: %q, password: %q}}\n",
			name, vcsim.Admin.Username, vcsim.Admin.Password)
	}
	const list = "apiVersion: v1\nkind: List\nitems:\n"
	rest := account("west-login") + fmt.Sprintf(`- {apiVersion: v1, kind: ConfigMap, metadata: {name: authority}, data: {ca.crt: %q}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: registry-ca}, data: {ca.crt: x}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: keys}, data: {a.pub: x}}
- {apiVersion: v1, kind: Secret, metadata: {name: mirror}, stringData: {.dockerconfigjson: Y2FuYXJ5}}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: east}
spec: {vcIp: %s, port: %d, credentials: vc, thumbprint: %q}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: west}
spec: {vcIp: %s, port: %d, credentials: west-login, ca: {configMap: authority}}
`, west.CA, east.Host, east.Port, east.SHA256, west.Host, west.Port) + `---
apiVersion: vdo.vmware.com/v1alpha1
kind: VDOConfig
metadata: {name: vdo}
spec:
  cloudProvider: {vsphereCloudConfigs: [east]}
  storageProvider: {vsphereCloudConfigs: [east, west], topologyCategories: [k8s-region, k8s-zone]}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: DriverBundle
metadata: {name: drivers}
spec:
  reference: registry.site/vdo/drivers:1
  ca: {configMap: registry-ca}
  pullSecret: {name: mirror}
  trust: {keys: [{id: a, from: {configMap: keys, key: a.pub}}]}
`
	file := filepath.Join(t.TempDir(), "site.yaml")
	configure := func(text string, code int, args []string, says ...string) string {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return s.run(append([]string{"configure", "--from-file", file}, args...)...).is(code, says...)
	}
	yes, ofWest := []string{"--yes"}, []string{"--yes", "--vcenter", "west"}
	login := &corev1.Secret{ObjectMeta: s.meta("west-login")}
	login.StringData = map[string]string{"password": "old", "theirs": "kept"}
	s.create(login)
	whole := list + account("vc") + rest
	rest = list + rest
	configure(whole, 8, ofWest, "west-login", "overwrite them with --force-conflicts") // somebody else set the password
	out := configure(whole, 0, []string{"--yes", "--force-conflicts"})
	require.NotContains(t, out, vcsim.Admin.Password)
	require.NotContains(t, out, "Y2FuYXJ5")
	for _, x := range []client.Object{&corev1.Secret{ObjectMeta: s.meta("vc")}, &corev1.Secret{ObjectMeta: s.meta("mirror")},
		&corev1.ConfigMap{ObjectMeta: s.meta("authority")}, &corev1.ConfigMap{ObjectMeta: s.meta("registry-ca")},
		&corev1.ConfigMap{ObjectMeta: s.meta("keys")}} {
		require.True(t, s.there(x), "%s\n%s", x.GetName(), out)
	}
	require.Equal(t, vcsim.Admin.Password, string(got(s, login).Data["password"]))
	require.Equal(t, "kept", string(login.Data["theirs"]), "the file does not have it")
	require.Equal(t, "authority", s.vcenter("west").Spec.CA.ConfigMap)
	require.Equal(t, []string{"east"}, s.config().Spec.CloudProvider.VsphereCloudConfigs, "as the file has it")
	require.Nil(t, s.config().Spec.CloudProvider.Topology, "the file has categories for storage alone")
	require.Len(t, s.config().Spec.StorageProvider.TopologyCategories, 2)

	// Once more: defaults of the API server are no change, and the Secret may be in the cluster alone.
	configure(whole, 0, ofWest, "all is as asked already")
	configure(rest, 0, yes, "asking "+east.Host, "all is as asked already")
	out = configure(strings.Replace(rest, "  reference:", "  interval: 20m\n  reference:", 1), 0,
		[]string{"--dry-run", "--region-category", "k8s-region", "--zone-category", "k8s-zone"},
		"spec.interval: 10m -> 20m0s", "spec.cloudProvider.topology")
	require.NotContains(t, out, "onDelete")

	// All that is wrong, at once: with the flags, the file, and what the API server says.
	configure(strings.Replace(rest, "reference:", "referense:", 1), 2, []string{"--port", "a", "--username", "vdo"},
		`unknown field "spec.referense"`, "--port", "--username")
	configure(strings.Replace(rest, "  reference:", "  versions: never\n  reference:", 1), 2, yes,
		"apply DriverBundle "+s.ns+"/drivers", "spec.versions")
	s.create(&v1alpha1.VDOConfig{ObjectMeta: s.meta("a-second"), Spec: s.config().Spec}) // the operator refuses it
	configure(rest, 8, yes, "there are 2")
	served := s.config()
	served.Finalizers = []string{v1alpha1.FinalizerDrivers}
	require.NoError(t, s.k.Update(t.Context(), served))
	configure(rest, 0, yes, "asking "+east.Host, "all is as asked already")
	configure(strings.Replace(rest, "{name: vdo}", "{name: a-second}", 1), 8, yes, "the cluster has another one, vdo")
}

// What a site has withdrawn from its file is trusted no more. Other ConfigMaps keep keys that the file does not
// have. The operator reads binaryData too, as `kubectl create configmap --from-file` makes it; a key is in one of both.
func TestConfigureWritesConfigMapsAsTheFileHasThem(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	all := append(answersFor(t, east, vcsim.Admin.Password), "--no-check")
	s.ok(append(all, "-o", file)...)
	s.ok(append(all, "--yes")...) // the cluster has what the file has
	site := readFile(t, file)
	policy := "threshold: 1 # " + strings.Repeat("-", 100) + "\n"
	long := strings.ReplaceAll(policy, "\n", `\n`)
	binary := []byte("\x00\x01\x02")
	type data = map[string]string
	const trust, ca = "vdo-trust", "vdo-registry-ca"
	for _, c := range []struct {
		name, says string // a ConfigMap, and what the file says of it
		has        data   // set by someone else before; nil: it is as it was left
		shows      []string
		data       data
		binary     map[string][]byte
	}{
		{trust, "data: {cosign.pub: c}", data{"policy.yaml": "p", "vdo.pub": "v"},
			[]string{"data.policy.yaml: p -> none", "data.vdo.pub: v -> none", "data.cosign.pub: c"}, data{"cosign.pub": "c"}, nil},
		{trust, `data: {policy.yaml: "` + long + `keys: [a]\n"}`, data{"policy.yaml": policy + "keys: [a, b]\n"},
			[]string{"data.policy.yaml: threshold: 1 # ---", "-> (differs in what is not shown)"}, data{"policy.yaml": policy + "keys: [a]\n"}, nil},
		{trust, "data:", data{"a.pub": "a"}, []string{"data.a.pub: a -> none"}, nil, nil},
		{trust, "binaryData: {old.pub: AAEC}", nil, []string{"binaryData.old.pub: AAEC\n"}, nil, map[string][]byte{"old.pub": binary}},
		{trust, "data: {new.pub: key}", nil, []string{"binaryData.old.pub: AAEC -> none"}, data{"new.pub": "key"}, nil},
		{ca, "binaryData: {ca.crt: AAEC}", data{"theirs": "d"}, []string{"binaryData.ca.crt: AAEC\n"}, data{"theirs": "d"}, map[string][]byte{"ca.crt": binary}},
		{ca, "data: {ca.crt: text}", nil, []string{"data.ca.crt: text"}, data{"ca.crt": "text", "theirs": "d"}, nil},
		{ca, "binaryData: {ca.crt: AAEC}", nil, []string{"data.ca.crt: text -> none"}, data{"theirs": "d"}, map[string][]byte{"ca.crt": binary}},
	} {
		is := &corev1.ConfigMap{ObjectMeta: s.meta(c.name)}
		s.create(is.DeepCopy())
		if got(s, is); c.has != nil {
			is.Data = c.has
			require.NoError(t, s.k.Update(t.Context(), is))
		}
		text := site + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + c.name + "}\n" + c.says + "\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		s.run("configure", "--from-file", file, "--no-check", "--dry-run").is(0, c.shows...)
		require.Equal(t, is.ResourceVersion, got(s, is).ResourceVersion, "--dry-run: %s", c.says)
		s.run("configure", "--from-file", file, "--no-check", "--yes").is(0, "changed    ConfigMap "+s.ns+"/"+c.name)
		got(s, is)
		require.Equal(t, c.data, is.Data, c.says)
		require.Equal(t, c.binary, is.BinaryData, c.says)
		s.run("configure", "--from-file", file, "--no-check", "--yes").is(0, "all is as asked already")
	}
}

func portOf(v *vcsim.VCenter) string { return strconv.Itoa(v.Port) }

// terminal is a pseudo-terminal in which vdoctl runs, with all that it has shown.
type terminal struct {
	t     *testing.T
	cmd   *exec.Cmd
	tty   *os.File
	shown string
}

// open runs vdoctl in a terminal, as a person who has no manual.
func (s *shop) open(args ...string) *terminal {
	ctx, stop := context.WithTimeout(s.t.Context(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, "vdoctl", append(args, "-n", s.ns)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.conf)
	tty := must.Have(pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 150}))(s.t)
	s.t.Cleanup(func() { stop(); _ = tty.Close() })
	return &terminal{t: s.t, cmd: cmd, tty: tty}
}

// asks reads until a question is the last that is shown, and a password would not be.
func (w *terminal) asks(question string) {
	for is := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(question) + `.*[:\]] \z`); !is.MatchString(w.shown); {
		part := make([]byte, 4096)
		n, err := w.tty.Read(part)
		require.NoError(w.t, err, "%s is not asked:\n%s", question, w.shown)
		w.shown += strings.ReplaceAll(string(part[:n]), "\r", "")
	}
	for range 10_000 { // milliseconds; then it is seen
		state := must.Have(unix.IoctlGetTermios(int(w.tty.Fd()), unix.TCGETS))(w.t)
		if !strings.HasPrefix(question, "Password") || state.Lflag&unix.ECHO == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
}

// answers types after each question; "" takes what is offered.
func (w *terminal) answers(dialogue ...string) {
	for pair := range slices.Chunk(dialogue, 2) {
		w.asks(pair[0])
		must.Have(w.tty.WriteString(pair[1] + "\n"))(w.t)
		w.shown += "\n" // it is asked no more
	}
}

// ctrlC presses that at a question, which ends the program.
func (w *terminal) ctrlC(question string) string {
	w.asks(question)
	state := must.Have(unix.IoctlGetTermios(int(w.tty.Fd()), unix.TCGETS))(w.t)
	state.Lflag |= unix.NOFLSH // or the kernel drops what the program answers at once
	require.NoError(w.t, unix.IoctlSetTermios(int(w.tty.Fd()), unix.TCSETS, state))
	must.Have(w.tty.WriteString("\x03"))(w.t)
	return w.ends().is(130, "\nerror: interrupted: no changes made\n")
}

func (w *terminal) ends() result {
	w.t.Helper()
	rest, _ := io.ReadAll(w.tty) // its error is the end of the program
	return ended(w.t, w.shown+strings.ReplaceAll(string(rest), "\r", ""), w.cmd.Wait())
}

// Someone without a manual answers wrongly, and is asked again for just that.
func TestConfigureOnATerminal(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	user, password := vcsim.Admin.Username, "Password of "+vcsim.Admin.Username
	trust := "Trust the certificate of " + east.Host + ":" + portOf(east) + "?"
	w := s.open("configure")
	w.answers("Bundle in the mirror", "not a reference!", "Bundle in the mirror", "registry.site/vdo/drivers:1",
		"Which drivers", "", "Name for the vCenter", "",
		"Address of the vCenter", "https://"+east.Host, "Address of the vCenter", east.Host, "Port of its API", "1",
		"Account of the drivers", user, password, vcsim.Admin.Password,
		"Address of the vCenter", "", "Port of its API", portOf(east), password, "canary-wrong",
		trust, "y", // no known CA has signed it
		"Account of the drivers", "", password, "canary-wrong", // which is not sent again
		"Account of the drivers", "", password, vcsim.Admin.Password,
		"Datacenters, with commas", "/site/prod/est", "Datacenters, with commas", "/site/prod/east",
		"Tag category of regions", "west", "Tag category of zones", `""`, "Upgrades", "",
		"Write this to the cluster, context ", "y")
	out := w.ends().is(0, "\n  * ", "a host name or IP address alone", "it does not answer", "SHA-256: "+east.SHA256,
		"answers: version", "the account sees /lab, /site/prod/east, /site/west",
		"of datacenters, with commas; - for all", `"/site/prod/est"] not there or not readable`)
	require.NotContains(t, out, vcsim.Admin.Password)
	require.Equal(t, 1, east.Refused(user))
	require.Equal(t, []string{"/site/prod/east"}, s.vcenter("vcenter").Spec.Datacenters)
	require.Equal(t, east.SHA256, s.vcenter("vcenter").Spec.Thumbprint)

	// Again: what is there is kept, and Ctrl-C changes nothing.
	s.open("configure").ctrlC("Bundle in the mirror")
	w = s.open("configure")
	w.answers("Bundle in the mirror", "", "Which drivers", "", "Name for the vCenter", "",
		"Address of the vCenter", "", "Port of its API", "", "Account of the drivers", "", password, "",
		"Datacenters, with commas", "", "Tag category of regions", "", "Upgrades", "")
	w.ends().is(0, "REGISTRY/REPO:TAG of the bundle in the site's mirror", "Nothing to change")

	// Another address is another vCenter: the account and the password are not offered to it.
	again := []string{"configure", "--bundle", "registry.site/vdo/drivers:1", "--drivers", "both",
		"--vcenter", "vcenter"}
	w = s.open(again...)
	w.answers("Address of the vCenter", "vc.other.site", "Port of its API", "")
	require.NotContains(t, w.ctrlC("Account of the drivers"), "drivers [")

	// Where any certificate was to be accepted, a person who is there is asked.
	v := &v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta("vcenter")}
	anyOne := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"thumbprint":null,"insecure":true}}`))
	require.NoError(t, s.k.Patch(t.Context(), v, anyOne))
	accepted := []string{"Address of the vCenter", "", "Port of its API", "",
		"Account of the drivers", "", password, ""}
	w = s.open(again...)
	w.answers(append(accepted, trust, "n")...)
	w.ends().is(5, "hint: --vcenter-ca-file has to be")

	// A wrong thumbprint is asked for again, and so are passwords, before they could lock the account.
	w = s.open(append(again, "--thumbprint", strings.Repeat("AA:", 31)+"AA")...)
	w.answers(append(accepted, "Thumbprint of its certificate", east.SHA256, password, "canary-one",
		"Account of the drivers", "", password, "canary-two",
		"Account of the drivers", "", password, "canary-three")...)
	w.ends().is(6)
	require.Equal(t, 4, east.Refused(user))

	// No password goes into a file, and none is asked for where the vCenter is not tried.
	w = s.open("configure", "-o", filepath.Join(t.TempDir(), "site.yaml"), "--no-check", "--drivers", "both",
		"--bundle", "registry.site/vdo/drivers:1", "--vcenter", "north", "--server", "vc.site", "--port", "443",
		"--region-category", "k8s-region", "--zone-category", "k8s-zone", "--upgrade", "Manual")
	w.answers("Account of the drivers", "north@vsphere.local", "Datacenters, with commas", "")
	w.ends().is(0)
}

// The prompts for an administrator's password and for consent, answered with Ctrl-C, with no answer, and rightly.
func TestUsersOnATerminal(t *testing.T) {
	s := newShop(t)
	v := vcsim.Start(t, vcsim.Options{Machines: 1})
	s.add("west", v, "site/west")
	secret := &corev1.Secret{ObjectMeta: s.meta("vc")}
	trusts := func(thumbprint string) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"thumbprint":`+thumbprint+`}}`))
		require.NoError(t, s.k.Patch(t.Context(), &v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta("west")}, patch))
	}
	trusts("null")
	create := []string{"users", "create", "--username"}
	out := s.open(append(create, vcsim.Administrator.Username)...).ends().
		is(5, "`vdoctl configure --vcenter west --vcenter-ca-file CA`")
	require.NotContains(t, out, "Password of", "no password is asked for that could not be sent")
	trusts(strconv.Quote(v.SHA256))
	password := "Password of " + vcsim.Administrator.Username + " at \"127.0.0.1\""
	s.open(append(create, vcsim.Administrator.Username)...).ctrlC(password)
	for _, x := range []struct {
		entry, answer string
		code          int
	}{{"", "perhaps", 8}, {"west=", "y", 0}} {
		w := s.open(append(create, x.entry+vcsim.Administrator.Username)...)
		w.answers(password, vcsim.Administrator.Password)
		w.asks("Apply the above to vCenter ")
		require.False(t, s.there(secret))
		w.answers("Apply the above to vCenter ", x.answer)
		out = w.ends().is(x.code, "would make account vdo-")
		require.NotContains(t, out, vcsim.Administrator.Password)
	}
	require.True(t, s.there(secret))
	require.NotContains(t, out, string(secret.Data["password"]))
}
