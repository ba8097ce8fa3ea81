package cli_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/readme"
	upstreamworld "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

// prelude is what comes between a README and the world of a test: the flags that lead
// vdo-bundle to the stand-in for the internet, another host, a cluster.
const prelude = `
vdo-bundle() {
  case "$1" in
    lock|pull) command vdo-bundle "$@" $UPFLAGS ;;
    *) command vdo-bundle "$@" ;;
  esac
}
ssh() { shift; "$@"; }
kubectl() { [ "$1" = create ] || { grep -q "^kind: Deployment\$" "$3" && echo applied; }; }
`

// host is where the commands of one block of README.md are typed.
type host struct {
	*world
	env    []string
	as     []string // of the README's text, and what it is here
	server *exec.Cmd
}

// The commands that bundler/README.md and bundler/docs show, block by block, are run as they
// are, and what is shown as their output is what comes.
func TestReadmeCommands(t *testing.T) {
	var blocks []readme.Block
	for _, name := range []string{"README.md", "docs/bundles.md", "docs/registries.md", "docs/trust.md"} {
		of := must(readme.Blocks(filepath.Join("..", "..", name), "kubectl"))(t)
		require.NotEmpty(t, of, name)
		blocks = append(blocks, of...)
	}
	tried := 0
	for _, b := range blocks {
		first := b.Commands[0].Text
		i := 0
		for i < len(scenes) && !strings.HasPrefix(first, scenes[i].begins) {
			i++
		}
		require.Less(t, i, len(scenes), "%s, %s: the block needs a scene in this test", b.File, b.Commands[0])
		tried++
		t.Run(b.Section+" "+strings.Fields(first)[1], func(t *testing.T) {
			t.Parallel()
			d := newHost(t)
			if scenes[i].setUp != nil {
				scenes[i].setUp(d)
			}
			for _, c := range b.Commands {
				d.typed(c)
			}
		})
	}
	require.Equal(t, len(scenes), tried, "each scene is for one block")
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	d := &host{world: newWorld(t, dir)}
	d.env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	for name, value := range d.world.env() {
		d.env = append(d.env, name+"="+value)
	}
	d.env = append(d.env, "SSL_CERT_FILE="+filepath.Join(dir, "ca.crt"))
	d.as = []string{
		"registry.site:5000", d.mirror.Host, "registry.site/", d.mirror.Host + "/", "mirror-ca.crt", "ca.crt"}
	t.Cleanup(d.stop)
	return d
}

func (d *host) stop() {
	if d.server != nil {
		_ = syscall.Kill(-d.server.Process.Pid, syscall.SIGKILL)
		_ = d.server.Wait()
	}
}

func (d *host) here(text string) string { return strings.NewReplacer(d.as...).Replace(text) }

func (d *host) bash(line string) *exec.Cmd {
	cmd := exec.CommandContext(d.t.Context(), "bash", "-o", "pipefail", "-c", prelude+line)
	cmd.Dir, cmd.Env = d.dir, d.env
	return cmd
}

// do runs what a block takes for granted.
func (d *host) do(lines ...string) {
	for _, line := range lines {
		out, err := d.bash(line).CombinedOutput()
		require.NoError(d.t, err, "%s\n%s", line, out)
	}
}

// typed runs a command of the README. One that is shown with an error fails, others
// do not.
func (d *host) typed(c readme.Command) {
	shown := make([]string, len(c.Output))
	wantError := false
	for i, line := range c.Output {
		shown[i] = d.here(line)
		wantError = wantError || strings.HasPrefix(line, "error: ") || strings.Contains(line, `"error":`)
	}
	if strings.HasPrefix(c.Text, "vdo-bundle serve ") {
		d.serve(c, shown)
		return
	}
	out, err := d.bash(d.here(c.Text)).CombinedOutput()
	if wantError {
		require.Error(d.t, err, "README.md, %s", c)
	} else {
		require.NoError(d.t, err, "README.md, %s\n%s", c, out)
	}
	require.NoError(d.t, readme.Holds(shown, strings.Split(string(out), "\n")), "README.md, %s", c)
}

// serve starts the server, on a free port, until the block ends.
func (d *host) serve(c readme.Command, shown []string) {
	d.server = d.bash("exec " + d.here(c.Text) + " --listen 127.0.0.1:0")
	d.server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r, w, err := os.Pipe()
	require.NoError(d.t, err)
	d.server.Stdout, d.server.Stderr = w, w
	require.NoError(d.t, d.server.Start())
	require.NoError(d.t, w.Close())
	var got []string
	for scan := bufio.NewScanner(r); scan.Scan(); {
		got = append(got, scan.Text())
		if address, _, ok := strings.Cut(scan.Text(), "/vdo/drivers@sha256:"); ok && len(got) > 1 {
			d.as = append(d.as, "127.0.0.1:5000", address)
		}
		if readme.Holds(shown, got) == nil {
			go func() { _, _ = bufio.NewReader(r).WriteTo(&bytes.Buffer{}) }()
			return
		}
	}
	require.NoError(d.t, readme.Holds(shown, got), "README.md, %s", c)
}

// A scene is what a block of README.md takes for granted before its first command.
type scene struct {
	begins string // the block's first command
	setUp  func(d *host)
}

var scenes = []scene{
	{begins: "vdo-bundle keygen -o release", setUp: func(d *host) {
		up := must(upstreamworld.NewUpstream(d.t.Context(), upstreamworld.UpstreamOptions{
			Dir: d.dir, Releases: []string{"cpi@1.33.1", "cpi@1.34.0", "csi@3.7.3", "snapshot-controller@8.2.0"},
		}))(d.t)
		d.t.Cleanup(up.Close)
		d.env = append(d.env, "UPFLAGS="+strings.Join(up.Flags(), " "))
	}},
	{begins: "sha256sum vdo-bundle", setUp: func(d *host) { d.do("cp $VDO vdo-bundle") }},
	{begins: "vdo-bundle login registry.site:5000", setUp: func(d *host) {
		signed(d)
		d.write(d.t, "password", []byte(d.mirror.Password+"\n"))
		d.as = append(d.as, "-u robot", "-u "+d.mirror.Username)
		d.do("rm login/config.json")
	}},
	{begins: "vdo-bundle lock --k8s 1.33-1.34 --vsphere 8.0.3 -o lock.yaml --replace", setUp: func(d *host) {
		images.Push(d.t, d.upstream, "x/vdo/vdo-operator:v1.2.3", images.Spec{Seed: 77})
		d.as = append(d.as, "registry.example", "registry.test")
		signed(d)
	}},
	{begins: "vdo-bundle pull --lock lock.yaml --sign-key release.key --volume-size", setUp: locked},
	{begins: "vdo-bundle push october.tar", setUp: func(d *host) {
		d.key(d.t, "release")
		d.do("vdo-bundle lock -q --release csi@3.5.1 -o october.yaml", "vdo-bundle lock -q --release csi@3.5.1 --release cpi@1.34.0 -o november.yaml",
			"vdo-bundle pull -q --lock october.yaml --sign-key release.key -o october.tar")
	}},
	{begins: "vdo-bundle diff seven.tar eight.tar", setUp: func(d *host) {
		d.key(d.t, "k")
		d.do("sed -e 's/serial: 7/serial: 9/' matrix.yaml > nine.yaml",
			"vdo-bundle pull -q --sign-key k.key --release csi@3.5.1 --release cpi@1.33.1 -o seven.tar",
			"command vdo-bundle pull $UPFLAGS -q --sign-key k.key --matrix other.yaml --release csi@3.5.1 --release cpi@1.34.0 -o eight.tar",
			"command vdo-bundle pull $UPFLAGS -q --sign-key k.key --matrix nine.yaml --release csi@3.5.1 -o nine.tar")
		for _, push := range []string{"seven.tar $MIRROR/vdo/drivers:october", "seven.tar $MIRROR/vdo/drivers:v9", // the older first
			"eight.tar $MIRROR/vdo/drivers:v10", "nine.tar $MIRROR/vdo/drivers:v11"} {
			d.do("vdo-bundle push -q " + push + " --ca-file ca.crt")
		}
	}},
	{begins: "vdo-bundle inspect drivers.tar --key release.pub --format html", setUp: signed},
	{begins: "vdo-bundle sign drivers.tar --key release.key", setUp: func(d *host) {
		d.key(d.t, "release")
		d.do("printf pass > pin", "vdo-bundle keygen -o security", "vdo-bundle pull -q --k8s 1.33 -o drivers.tar")
		d.write(d.t, "both.yaml", []byte("apiVersion: vdo.vmware.com/trust/v1\nkind: TrustPolicy\nthreshold: 2\nkeys:\n"+
			"- {id: release, file: release.pub}\n- {id: security, file: security.pub}\n"))
	}},
	{begins: "vdo-bundle serve drivers.tar", setUp: signed},
	{begins: "vdo-bundle push drivers.tar registry.site:5000", setUp: signed},
	{begins: "vdo-bundle pull --lock lock.yaml --sign-key release.key -o - | ssh isolated-host", setUp: locked},
}

func locked(d *host) {
	d.key(d.t, "release")
	d.do("vdo-bundle lock -q -o lock.yaml")
}

func signed(d *host) {
	locked(d)
	d.do("vdo-bundle pull -q --lock lock.yaml --sign-key release.key -o drivers.tar")
}
