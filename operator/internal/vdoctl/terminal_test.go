package vdoctl_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

func portOf(v *vcsim.VCenter) string { return strconv.Itoa(v.Port) }

// terminal is a real one: a server of tmux with one window, in which a program runs.
type terminal struct {
	t      *testing.T
	socket string
	status string // file with the exit code, once the program has ended
}

// open runs vdoctl in a terminal, as a person who has no manual.
func (s *shop) open(args ...string) *terminal {
	s.t.Helper()
	tmux := toolchain.Installed(s.t, "tmux")
	dir := s.t.TempDir()
	term := &terminal{t: s.t, socket: filepath.Join(dir, "tmux"), status: filepath.Join(dir, "status")}
	program, err := exec.LookPath("vdoctl")
	require.NoError(s.t, err)
	line := program
	for _, a := range append(args, "-n", s.ns) {
		line += " '" + a + "'"
	}
	script := filepath.Join(dir, "run.sh")
	require.NoError(s.t, os.WriteFile(script, fmt.Appendf(nil, "trap : INT\nexport KUBECONFIG='%s'\n%s\necho $? > '%s.new'; mv '%s.new' '%s'; sleep 600\n", s.conf, line, term.status, term.status, term.status), 0o600))
	cmd := exec.CommandContext(s.t.Context(), tmux, "-S", term.socket, "-f", os.DevNull, "new-session", "-d", "-x", "150", "-y", "50", "sh", script)
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, string(out))
	s.t.Cleanup(func() { _ = exec.Command(tmux, "-S", term.socket, "kill-server").Run() })
	return term
}

func (w *terminal) tmux(args ...string) string {
	w.t.Helper()
	out, err := exec.CommandContext(w.t.Context(), "tmux", append([]string{"-S", w.socket}, args...)...).CombinedOutput()
	require.NoError(w.t, err, string(out))
	return string(out)
}

func (w *terminal) screen() string { return w.tmux("capture-pane", "-p", "-S", "-200") }

func (w *terminal) until(what string, came func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !came(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("%q is not on the screen:\n%s", what, w.screen())
		}
	}
}

func (w *terminal) sees(text string) {
	w.t.Helper()
	w.until(text, func() bool { return strings.Contains(w.screen(), text) })
}

// asks waits until a question is the last that is on the screen, and nothing is typed yet.
func (w *terminal) asks(question string) {
	w.t.Helper()
	prompt := regexp.MustCompile(`(?:^|\n)` + regexp.QuoteMeta(question) + `(?: \[[^\n]*\])?:\s*$`)
	w.until(question, func() bool { return prompt.MatchString(w.screen()) })
}

// answers waits until a question is asked, and types in place of what is offered.
func (w *terminal) answers(question, text string) {
	w.t.Helper()
	w.asks(question)
	w.types(text)
}

func (w *terminal) accepts(questions ...string) {
	w.t.Helper()
	for _, question := range questions {
		w.asks(question)
		w.tmux("send-keys", "Enter")
	}
}

func (w *terminal) types(text string) {
	w.t.Helper()
	w.tmux("send-keys", "-l", text)
	w.tmux("send-keys", "Enter")
}

func (w *terminal) ends() string {
	w.t.Helper()
	w.until("the end", func() bool {
		_, err := os.Stat(w.status)
		return err == nil
	})
	return strings.TrimSpace(readFile(w.t, w.status))
}

// Someone without a manual answers wrongly, and is asked again for just that.
func TestConfigureOnATerminal(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	w := s.open("configure")
	w.answers("Bundle in the mirror", "not a reference!")
	w.sees("* ")
	w.answers("Bundle in the mirror", "registry.site/vdo/drivers:1")
	w.accepts("Which drivers", "Name for the vCenter")
	w.answers("Address of the vCenter", "https://"+east.Host)
	w.sees("a host name or IP address alone")
	w.answers("Address of the vCenter", east.Host)
	w.answers("Port of its API", "1")
	w.answers("Account of the drivers", vcsim.Admin.Username)
	w.answers("Password of "+vcsim.Admin.Username, vcsim.Admin.Password)
	w.sees("it does not answer")
	w.accepts("Address of the vCenter")
	w.answers("Port of its API", portOf(east))
	w.answers("Password of "+vcsim.Admin.Username, "canary-wrong")

	// The certificate is of no one's authority.
	w.sees("SHA-256: " + east.SHA256)
	w.sees("Trust the certificate of " + east.Host + ":" + portOf(east) + "? [y/N]")
	w.types("y")
	// A refused password is not sent again.
	for _, password := range []string{"canary-wrong", vcsim.Admin.Password} {
		w.accepts("Account of the drivers")
		w.answers("Password of "+vcsim.Admin.Username, password)
	}
	w.sees("answers: version")
	require.Equal(t, 1, east.Refused(vcsim.Admin.Username))
	w.sees("the account sees /lab, /site/prod/east, /site/west")
	w.sees("of datacenters, with commas; - for all")
	w.answers("Datacenters, with commas", "/site/prod/est")
	w.sees(`"/site/prod/est"] not there or not readable`)
	w.answers("Datacenters, with commas", "/site/prod/east")
	w.answers("Tag category of regions", `""`)
	w.accepts("Upgrades")
	w.sees("Write this to the cluster, context ")
	require.NotContains(t, w.screen(), vcsim.Admin.Password)
	w.types("y")
	require.Equal(t, "0", w.ends(), w.screen())
	require.Equal(t, []string{"/site/prod/east"}, s.vcenter("vcenter").Spec.Datacenters)
	require.Equal(t, east.SHA256, s.vcenter("vcenter").Spec.Thumbprint)

	// Again: what is there is kept, and Ctrl-C changes nothing.
	w = s.open("configure")
	w.sees("REGISTRY/REPO:TAG of the bundle in the site's mirror")
	w.asks("Bundle in the mirror")
	w.tmux("send-keys", "C-c")
	require.Equal(t, "130", w.ends(), w.screen())
	require.Regexp(t, `(?m)^error: interrupted: no changes made$`, w.screen())
	w = s.open("configure")
	w.accepts("Bundle in the mirror", "Which drivers", "Name for the vCenter", "Address of the vCenter",
		"Port of its API", "Account of the drivers", "Password of "+vcsim.Admin.Username,
		"Datacenters, with commas", "Tag category of regions", "Upgrades")
	require.Equal(t, "0", w.ends(), w.screen())
	require.Contains(t, w.screen(), "Nothing to change")

	// Another address is another vCenter: the account and the password are not offered to it.
	w = s.open("configure", "--bundle", "registry.site/vdo/drivers:1", "--drivers", "both", "--vcenter", "vcenter")
	w.answers("Address of the vCenter", "vc.other.site")
	w.accepts("Port of its API")
	w.sees("Account of the drivers:")
	w.tmux("send-keys", "C-c")
	require.Equal(t, "130", w.ends(), w.screen())

	// Where any certificate was to be accepted, a person who is there is asked.
	v := &v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta("vcenter")}
	anyOne := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"thumbprint":null,"insecure":true}}`))
	require.NoError(t, s.k.Patch(t.Context(), v, anyOne))
	w = s.open("configure", "--bundle", "registry.site/vdo/drivers:1", "--drivers", "both", "--vcenter", "vcenter")
	w.accepts("Address of the vCenter", "Port of its API", "Account of the drivers",
		"Password of "+vcsim.Admin.Username)
	w.sees("Trust the certificate of " + east.Host + ":" + portOf(east) + "? [y/N]")
	w.types("n")
	w.sees("hint: --vcenter-ca-file has to be")
	require.NotEqual(t, "0", w.ends(), w.screen())

	// A wrong thumbprint is asked for again, and so are passwords, before they could lock the account.
	w = s.open("configure", "--bundle", "registry.site/vdo/drivers:1", "--drivers", "both", "--vcenter", "vcenter",
		"--thumbprint", strings.Repeat("AA:", 31)+"AA")
	w.accepts("Address of the vCenter", "Port of its API", "Account of the drivers",
		"Password of "+vcsim.Admin.Username)
	w.answers("Thumbprint of its certificate", east.SHA256)
	w.answers("Password of "+vcsim.Admin.Username, "canary-one")
	for _, password := range []string{"canary-two", "canary-three"} {
		w.accepts("Account of the drivers")
		w.answers("Password of "+vcsim.Admin.Username, password)
	}
	require.Equal(t, "6", w.ends(), w.screen())
	require.Equal(t, 4, east.Refused(vcsim.Admin.Username))

	// No password goes into a file, and none is asked for where the vCenter is not tried.
	w = s.open("configure", "-o", filepath.Join(t.TempDir(), "site.yaml"), "--no-check", "--bundle", "registry.site/vdo/drivers:1", "--drivers", "both", "--vcenter", "north", "--server", "vc.site", "--port", "443",
		"--region-category", "k8s-region", "--zone-category", "k8s-zone", "--upgrade", "Manual")
	w.answers("Account of the drivers", "north@vsphere.local")
	w.accepts("Datacenters, with commas")
	require.Equal(t, "0", w.ends(), w.screen())
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
	unknown := s.open("users", "create", "--username", vcsim.Administrator.Username)
	unknown.sees("`vdoctl configure --vcenter NAME --vcenter-ca-file CA`")
	require.NotContains(t, unknown.screen(), "Password of", "no password is asked for that could not be sent")
	trusts(strconv.Quote(v.SHA256))
	open := func(entry string) *terminal {
		w := s.open("users", "create", "--username", entry+vcsim.Administrator.Username)
		w.sees("Password of " + vcsim.Administrator.Username + " at \"127.0.0.1\":")
		return w
	}
	w := open("")
	w.tmux("send-keys", "C-c")
	require.Equal(t, "130", w.ends(), w.screen())
	for _, x := range []struct{ entry, answer, code string }{{"", "perhaps", "8"}, {"west=", "y", "0"}} {
		w = open(x.entry)
		w.types(vcsim.Administrator.Password)
		w.sees("Apply the above to vCenter ")
		require.Contains(t, w.screen(), "would make account vdo-")
		require.NotContains(t, w.screen(), vcsim.Administrator.Password)
		require.False(t, s.there(secret))
		w.types(x.answer)
		require.Equal(t, x.code, w.ends(), w.screen())
	}
	require.True(t, s.there(secret))
	require.NotContains(t, w.screen(), string(secret.Data["password"]))
}
