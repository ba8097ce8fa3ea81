package cli_test

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/readme"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
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
kubectl() { [ "$1" = create ] || { grep -q '^kind: Deployment$' && echo applied; }; }
`

// host is where the commands of one block of README.md are typed.
type host struct {
	*world
	env    []string
	as     []string // of the README's text, and what it is here
	server *exec.Cmd
}

// The commands that bundler/README.md and the README.md here show, block by block, are run
// as they are, and what is shown as their output is what comes.
func TestReadmeCommands(t *testing.T) {
	var blocks []readme.Block
	for _, name := range []string{filepath.Join("..", "..", "README.md"), "README.md"} {
		of, err := readme.Blocks(name, "kubectl")
		require.NoError(t, err)
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
				if before := scenes[i].before[c.Text]; before != nil {
					before(d)
				}
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
	d.env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "SSL_CERT_FILE="+filepath.Join(dir, "ca.crt"))
	for name, value := range d.world.env() {
		d.env = append(d.env, name+"="+value)
	}
	d.as = []string{"registry.site:5000", d.mirror.Host, "registry.site/", d.mirror.Host + "/"}
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
	d.t.Helper()
	for _, line := range lines {
		out, err := d.bash(line).CombinedOutput()
		require.NoError(d.t, err, "%s\n%s", line, out)
	}
}

// typed runs a command of the README. One that is shown with an error fails, others
// do not.
func (d *host) typed(c readme.Command) {
	d.t.Helper()
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
	d.t.Helper()
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

// A scene is what a block of README.md takes for granted: what is there before its first
// command, and what somebody else does between two of them.
type scene struct {
	begins string // the block's first command
	setUp  func(d *host)
	before map[string]func(d *host)
}

var scenes = []scene{
	{begins: "vdo-bundle keygen -o release", setUp: func(d *host) {
		up, err := upstreamworld.NewUpstream(d.t.Context(), upstreamworld.UpstreamOptions{
			Dir: d.dir, Releases: []string{"cpi@1.33.1", "cpi@1.34.0", "csi@3.7.3", "snapshot-controller@8.2.0"},
		})
		require.NoError(d.t, err)
		d.t.Cleanup(up.Close)
		d.env = append(d.env, "UPFLAGS="+strings.Join(up.Flags(), " "))
		d.do("cp ca.crt site-ca.crt")
		d.as = append(d.as, "127.0.0.1:42377", d.mirror.Host)
	}},
	{begins: "sha256sum vdo-bundle", setUp: func(d *host) { d.do("cp $VDO vdo-bundle") }},
	{begins: "vdo-bundle login registry.site:5000", setUp: func(d *host) {
		signed(d)
		d.write(d.t, "password", []byte(d.mirror.Password+"\n"))
		d.as = append(d.as, "-u robot", "-u "+d.mirror.Username)
		d.do("rm login/config.json")
	}},
	{begins: "vdo-bundle pull --lock lock.yaml --sign-key release.key -o drivers.tar", setUp: func(d *host) {
		images.Push(d.t, d.upstream, "x/vdo/vdo-operator:v1.2.3", images.Spec{Seed: 77})
		d.key(d.t, "release")
		d.do("vdo-bundle lock -q --operator registry.test/vdo/vdo-operator:v1.2.3 -o lock.yaml")
	}},
	{begins: "vdo-bundle pull --lock lock.yaml --sign-key release.key -o sip.tar", setUp: func(d *host) {
		for seed, name := range []string{"lb/haproxy:3.2.23", "login/dex:v2.44.0", "vdo/vdo-operator:v1.2.3", "vdo/vdo-jumphost:v1.2.3"} {
			images.Push(d.t, d.upstream, "x/"+name, images.Spec{Seed: uint64(71 + seed)})
		}
		d.key(d.t, "release")
		matrix, err := os.ReadFile(filepath.Join(d.dir, "matrix.yaml"))
		require.NoError(d.t, err)
		d.write(d.t, "matrix.yaml", append(matrix, `services:
  - {service: haproxy, version: 3.2.23, state: lts, image: "registry.test/lb/haproxy:3.2.23", basis: test}
  - {service: dex, version: 2.44.0, state: current, image: "registry.test/login/dex:v2.44.0", basis: test}
`...))
		d.do("vdo-bundle lock -q --operator registry.test/vdo/vdo-operator:v1.2.3 --services sip -o lock.yaml")
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
	{begins: "vdo-bundle sign drivers.tar --key signer.key", setUp: func(d *host) {
		certified(d)
		authority := pki.Root(d.t, "time root")
		leaf := authority.Issue(d.t, pki.Spec{Name: "time", Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}})
		d.write(d.t, "time-root.crt", authority.PEM())
		d.env = append(d.env, "TSA="+d.web(leaf.Stamps(nil)), "PORTAL="+d.web(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html>log in</html>"))
		})))
		d.do("vdo-bundle pull -q -o drivers.tar", "vdo-bundle pull -q -o november.tar")
	}},
	{begins: "vdo-bundle matrix sign matrix.yaml", setUp: certified},
	{begins: "vdo-bundle pull -q --lock lock.yaml -o signed.tar --verify-upstream", setUp: func(d *host) {
		d.do("vdo-bundle keygen -o up", "vdo-bundle lock -q --k8s 1.33 -o lock.yaml")
		d.write(d.t, "kubernetes.yaml", []byte("apiVersion: vdo.vmware.com/trust/v1\nkind: TrustPolicy\nkeys:\n- {id: up, file: up.pub}\n"))
		d.write(d.t, "upstream.yaml", []byte("apiVersion: vdo.vmware.com/upstream/v1\nkind: UpstreamPolicy\nrules:\n"+
			"- {images: registry.test, policy: kubernetes.yaml}\n- {images: registry.k8s.io, unsigned: true}\n"))
		d.cosign("cloud/ccm:v1.33.1", "csi/driver:v3.5.1", "csi/sidecar:v1")
	}, before: map[string]func(d *host){
		"vdo-bundle pull -q --lock lock.yaml -o signed.tar --verify-upstream upstream.yaml --upstream-signatures images": func(d *host) {
			d.cosign("csi/sidecar:v2")
		},
	}},
	{begins: "vdo-bundle verify drivers.tar --key release.pub --provenance", setUp: func(d *host) {
		d.key(d.t, "release")
		d.do("vdo-bundle pull -q --sign-key release.key --provenance -o drivers.tar",
			"vdo-bundle pull -q --sign-key release.key -o oci:swapped",
			"vdo-bundle pull -q --sign-key release.key --provenance --k8s 1.33 -o oci:other")
		swapStatement(d, "swapped", "other")
	}},
	{begins: "vdo-bundle serve drivers.tar", setUp: signed},
	{begins: "vdo-bundle push drivers.tar registry.site:5000", setUp: signed},
	{begins: "vdo-bundle pull --lock lock.yaml -o a.tar --dry-run", setUp: locked},
	{begins: "vdo-bundle pull --lock lock.yaml -o - | ssh isolated-host", setUp: locked},
	{begins: "vdo-bundle inspect none.tar"},
}

func locked(d *host) {
	d.key(d.t, "release")
	d.do("vdo-bundle lock -q -o lock.yaml")
}

func signed(d *host) {
	locked(d)
	d.do("vdo-bundle pull -q --lock lock.yaml --sign-key release.key -o drivers.tar")
}

// certified gives the host a certificate of the site's authority, and a policy for it.
func certified(d *host) {
	root := pki.Root(d.t, "Corp Root")
	issuing := root.Issue(d.t, pki.Spec{Name: "Corp Issuing", CA: true})
	leaf := issuing.Issue(d.t, pki.Spec{Name: "signer", Email: []string{"release@corp.example"}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}, NotAfter: time.Now().Add(time.Hour)})
	for name, data := range map[string][]byte{
		"corp-root.crt": root.PEM(), "signer-issuing.crt": issuing.PEM(), "signer.crt": leaf.PEM(), "signer.key": leaf.KeyPEM(d.t),
		"policy.yaml": []byte("apiVersion: vdo.vmware.com/trust/v1\nkind: TrustPolicy\ncertificates:\n" +
			"- id: corp\n  rootsFile: corp-root.crt\n  identities:\n  - email: release@corp.example\n"),
	} {
		d.write(d.t, name, data)
	}
}

func (d *host) web(h http.Handler) string {
	server := httptest.NewServer(h)
	d.t.Cleanup(server.Close)
	return server.URL
}

func (d *host) cosign(references ...string) {
	d.t.Helper()
	for _, r := range references {
		d.do(toolchain.Path(d.t, "cosign") + " sign -y --tlog-upload=false --allow-http-registry --key up.key $UP/x/" + r)
	}
}

// swapStatement puts the statement of another bundle into a folder, under the name of
// its own.
func swapStatement(d *host, into, from string) {
	d.t.Helper()
	read := func(dir string) (index ocispec.Index) {
		data, err := os.ReadFile(filepath.Join(d.dir, dir, "index.json"))
		require.NoError(d.t, err)
		require.NoError(d.t, json.Unmarshal(data, &index))
		return index
	}
	ours, theirs := read(into), read(from)
	var tag string
	for _, m := range ours.Manifests {
		if name, ok := strings.CutSuffix(m.Annotations[ocispec.AnnotationRefName], ".sig"); ok {
			tag = name + ".att"
		}
	}
	require.NotEmpty(d.t, tag)
	for _, m := range theirs.Manifests {
		if strings.HasSuffix(m.Annotations[ocispec.AnnotationRefName], ".att") {
			m.Annotations[ocispec.AnnotationRefName] = tag
			ours.Manifests = append(ours.Manifests, m)
		}
	}
	data, err := json.Marshal(ours)
	require.NoError(d.t, err)
	d.write(d.t, into+"/index.json", data)
	d.do("cp -n " + from + "/blobs/sha256/* " + into + "/blobs/sha256/")
}
