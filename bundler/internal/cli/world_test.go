package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/cli"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// asVersion is the variable that makes the tests' program the one under test, of that version.
const asVersion = "VDO_TEST_VERSION"

// binary is the real program, built once for all tests of this package.
var binary string

func TestMain(m *testing.M) {
	if v := os.Getenv(asVersion); v != "" {
		os.Exit(cli.Main(v, os.Args[1:]))
	}
	os.Exit(toolchain.Run(m, func(dir string) { binary = filepath.Join(dir, "vdo-bundle") }, "./bundler/cmd/vdo-bundle"))
}

// world is what one test has: an upstream registry without TLS, and a site's mirror
// with TLS and a login.
type world struct {
	t                testing.TB
	dir              string
	upstream, mirror *registry.Registry
	program          string   // default: binary
	vars             []string // more of the environment of its commands
}

// files are the upstream manifests of the tests' matrix, by release and name.
var files = map[string]map[string]string{
	"cpi@1.33.1": {"ccm.yaml": workload("DaemonSet", "ccm", "registry.test/cloud/ccm:v1.33.1")},
	"cpi@1.34.0": {"ccm.yaml": workload("DaemonSet", "ccm", "registry.test/cloud/ccm:v1.34.0")},
	"csi@3.5.1": {
		"driver.yaml": workload("Deployment", "controller", "registry.test/csi/driver:v3.5.1", "registry.test/csi/sidecar:v2") + "---\n" +
			workload("DaemonSet", "node-windows", "registry.test/csi/driver:v3.5.1", "registry.test/csi/sidecar:v1"),
		"namespace.yaml": "kind: Namespace\nmetadata: {name: csi}\n",
	},
	"snapshot-controller@8.2.0": {"setup.yaml": workload("Deployment", "snapshot-controller", "k8s.gcr.io/snap/controller:v8.0.1")},
}

func workload(kind, name string, images ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: apps/v1\nkind: %s\nmetadata: {name: %s}\nspec:\n  template:\n    spec:\n      containers:\n", kind, name)
	for i, image := range images {
		fmt.Fprintf(&b, "      - {name: c%d, image: %q}\n", i, image)
	}
	return b.String()
}

var matrixText = template.Must(template.New("matrix").Parse(`apiVersion: vdo.vmware.com/matrix/v1
kind: CompatibilityMatrix
serial: {{.Serial}}
issued: 2026-01-01T00:00:00Z
expires: {{.Expires}}
releases:
  - driver: cpi
    version: 1.33.1
    state: current
    kubernetes: {min: "1.33", max: "1.33", basis: test}
    vsphere: {min: "6.7.3", basis: test}
    manifests: {{index .Manifests "cpi@1.33.1"}}
  - driver: cpi
    version: 1.34.0
    state: current
    kubernetes: {min: "1.34", max: "1.34", basis: test}
    vsphere: {min: "6.7.3", basis: test}
    manifests: {{index .Manifests "cpi@1.34.0"}}
  - driver: snapshot-controller
    version: 8.2.0
    state: current
    kubernetes: {min: "1.25", max: "1.34", basis: test}
    manifests: {{index .Manifests "snapshot-controller@8.2.0"}}
    images:
      - {from: "k8s.gcr.io/snap/controller:v8.0.1", to: "k8s.gcr.io/snap/controller:v8.2.0", basis: the manifest lags}
  - driver: csi
    version: 3.5.1
    state: current
    kubernetes: {min: "1.31", max: "1.34", basis: test}
    vsphere: {min: "7.0.0", basis: test}
    requires:
      - {driver: snapshot-controller, version: 8.2.0}
    manifests: {{index .Manifests "csi@3.5.1"}}
`))

// matrixDocument writes the tests' matrix.
func matrixDocument(t testing.TB, serial int, expires string) []byte {
	manifests := map[string]string{}
	for release, of := range files {
		var items []string
		for _, name := range []string{"ccm.yaml", "namespace.yaml", "driver.yaml", "setup.yaml"} {
			if data, ok := of[name]; ok {
				items = append(items, fmt.Sprintf("{name: %s, url: %q, size: %d, sha256: %s}", name,
					"https://127.0.0.1:1/"+strings.ReplaceAll(release, " ", "/")+"/"+name, len(data), image.DigestOf([]byte(data)).Hex()))
			}
		}
		manifests[release] = "[" + strings.Join(items, ", ") + "]"
	}
	var out bytes.Buffer
	require.NoError(t, matrixText.Execute(&out, map[string]any{"Serial": serial, "Expires": expires, "Manifests": manifests}))
	return out.Bytes()
}

const distant = "2099-01-01T00:00:00Z"

// newWorld starts the registries and writes matrix, manifests, CA and login into dir.
func newWorld(t testing.TB, dir string) *world {
	t.Helper()
	return newWorldOf(t, dir, registry.Options{}, registry.Options{TLS: true, Auth: registry.Basic})
}

func newWorldOf(t testing.TB, dir string, upstream, mirror registry.Options) *world {
	if upstream.Dir == "" {
		upstream.Dir = t.TempDir()
	}
	require.NoError(t, os.CopyFS(upstream.Dir, os.DirFS(prepared(t))))
	w := &world{t: t, dir: dir, upstream: registry.Start(t, upstream), mirror: registry.Start(t, mirror)}
	w.write(t, "matrix.yaml", matrixDocument(t, 7, distant))
	w.write(t, "expired.yaml", matrixDocument(t, 7, "2026-01-02T00:00:00Z"))
	w.write(t, "other.yaml", matrixDocument(t, 8, distant))
	w.write(t, "ca.crt", w.mirror.CA())
	w.write(t, "login/config.json", w.mirror.DockerConfig())
	n := 0
	for _, of := range files {
		for name, data := range of {
			n++
			w.write(t, fmt.Sprintf("manifests/%d-%s", n, name), []byte(data))
		}
	}
	return w
}

var upstreamOnce sync.Once

// prepared is a folder with what a registry keeps that has the images of all releases. They
// are pushed once: it is a good part of what a world costs.
func prepared(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(filepath.Dir(binary), "upstream")
	upstreamOnce.Do(func() {
		r := must(registry.New(registry.Options{Dir: dir}))(t)
		defer r.Close() //nolint:errcheck // what it has is on the disk
		pushUpstream(t, r)
	})
	return dir
}

// pushUpstream pushes the images of all releases; the order decides nothing.
func pushUpstream(t testing.TB, to *registry.Registry) {
	t.Helper()
	for i, spec := range []struct {
		reference string
		spec      images.Spec
	}{
		{"x/cloud/ccm:v1.33.1", images.Spec{Layers: []int64{3000, 70_000}}},
		{"x/cloud/ccm:v1.34.0", images.Spec{Layers: []int64{4000}, Docker: true}},
		{"x/csi/driver:v3.5.1", images.Spec{Layers: []int64{200_000, 10}, Platforms: images.All}},
		{"x/csi/sidecar:v1", images.Spec{SharedLayers: []int64{50_000}, Platforms: images.Linux}},
		{"x/csi/sidecar:v2", images.Spec{SharedLayers: []int64{50_000}, Layers: []int64{7}, Platforms: images.Linux, Docker: true}},
		{"x/snap/controller:v8.2.0", images.Spec{Platforms: images.Linux}},
	} {
		spec.spec.Seed = uint64(i + 1)
		if strings.Contains(spec.reference, "sidecar") {
			spec.spec.Seed = 100 // the two share a layer
		}
		images.Push(t, to, spec.reference, spec.spec)
	}
}

func (w *world) write(t testing.TB, name string, data []byte) {
	path := filepath.Join(w.dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

// key writes a key pair, NAME.key and NAME.pub, that is not encrypted: to open one of
// keygen's takes a quarter of a second by design. Where that is a test's subject, or
// cosign has to read it, the test makes its key with keygen.
func (w *world) key(t testing.TB, name string) {
	t.Helper()
	key := pki.Root(t, name)
	w.write(t, name+".key", key.KeyPEM())
	w.write(t, name+".pub", key.PublicPEM())
}

// env is what the program needs to find its way in the world.
func (w *world) env() map[string]string {
	return map[string]string{
		"UP": w.upstream.Host, "MIRROR": w.mirror.Host,
		"DOCKER_CONFIG": filepath.Join(w.dir, "login"), "REGISTRY_AUTH_FILE": "", "XDG_RUNTIME_DIR": w.dir, "HOME": w.dir,
		"COSIGN_PASSWORD": "pass", "VDO": binary, "UPFLAGS": strings.Join(w.upFlags(), " "),
		// To read the machine's own CAs takes as long as all else at the start. The limit of memory stands in for GOGC.
		"SSL_CERT_FILE": "/none", "SSL_CERT_DIR": "/none", "GOGC": "off",
	}
}

// upFlags are what an argument "@up" stands for.
func (w *world) upFlags() []string {
	return []string{
		"--matrix", "matrix.yaml", "--manifest-dir", "manifests", "--plain-http", w.upstream.Host,
		"--source-map", "registry.test=" + w.upstream.Host + "/x", "--source-map", "registry.k8s.io=" + w.upstream.Host + "/x",
	}
}

// must returns what a call does that the test takes for granted.
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		require.NoError(t, err)
		return v
	}
}

type key struct{}

// TestScript runs the real program in real worlds. Besides testscript's own, the
// commands are:
//
//	vdo CODE ARGS…     run vdo-bundle and demand its exit code; @up stands for the
//	                   flags that lead to the upstream world
//	fault REG K=V…     make the registry (up or mirror) fail: status, method, path, query, body, times, cut, tamper
//	heal REG           end all faults of a registry
//	registry NAME KIND start another registry, distribution or referrers, and set $NAME to its host
//	flip FILE OFFSET   invert a byte of a file; a negative offset counts from the end,
//	                   a text is looked for
//	truncate FILE N    cut a file to N bytes, or by -N
//	tool CODE NAME …   run skopeo, cosign, crane or regctl and demand its exit code
//	foreach FILE CODE NAME …
//	                   the same for each word of FILE, in the place of {}
//	upimage REF SEED   push another image upstream
//	key NAME           make NAME.key, not encrypted, and NAME.pub
//	issue NAME EMAIL D make a root, an issuing authority and a certificate of EMAIL for
//	                   code signing that began D days ago and ends the day after:
//	                   NAME-root.crt, NAME-issuing.crt, NAME.crt, NAME.key
//	tsa NAME [MODE]    start a time-stamping authority and set $TSA to its address:
//	                   NAME-root.crt, NAME-chain.crt; one that is away does not answer
//	statement FILE     print the statement inside of what cosign verify-attestation printed
//	digests REPO LOCK  set $CCM and $DRIVER to REPO@DIGEST of those images of a lock
//	mounted CODE OPTIONS ARGS…
//	                   like vdo, with a tmpfs of mount OPTIONS at ./small
//	smaller A B        demand that file A has fewer bytes than file B
//	dropblob DIR TEXT  remove the largest blob of an OCI layout that holds TEXT, or
//	                   the "largest" of all
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			w := newWorld(e.T().(testing.TB), e.WorkDir) //nolint:forcetypeassert // testscript.Run gives a *testing.T
			for name, value := range w.env() {
				e.Setenv(name, value)
			}
			e.Values[key{}] = w
			return nil
		},
		Condition: condition,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"vdo": vdo, "fault": breakDown, "heal": heal, "registry": startRegistry, "flip": flip, "truncate": truncate,
			"tool": tool, "foreach": forEach, "upimage": upImage, "mounted": mounted, "dropblob": dropBlob, "smaller": smaller,
			"key": newKey, "issue": issue, "tsa": startTSA, "digests": digests, "statement": statement,
		},
	})
}

func condition(name string) (bool, error) {
	switch name {
	case "tmpfs":
		return os.Geteuid() == 0 && exec.Command("unshare", "--mount", "true").Run() == nil, nil
	case "unprivileged":
		return os.Geteuid() != 0, nil
	case "containerd":
		_, err := exec.LookPath("containerd")
		return err == nil && os.Geteuid() == 0, nil
	case "skopeo":
		_, err := exec.LookPath("skopeo")
		if err != nil && os.Getenv("CI") != "" {
			return false, errors.New("skopeo is not installed; .ci/run installs what tests need")
		}
		return err == nil, nil
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

func of(ts *testscript.TestScript) *world { return ts.Value(key{}).(*world) } //nolint:forcetypeassert // set by Setup

func vdo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: vdo CODE ARGS")
	}
	expectCode(ts, args[0], binary, of(ts).expand(args[1:]))
}

func (w *world) expand(args []string) []string {
	var out []string
	for _, arg := range args {
		if arg == "@up" {
			out = append(out, w.upFlags()...)
			continue
		}
		out = append(out, arg)
	}
	return out
}

// expectCode runs a program; stdout and stderr are there for the script to look at.
func expectCode(ts *testscript.TestScript, code, name string, args []string) {
	err := ts.Exec(name, args...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%s: %v", name, err)
	}
	if strconv.Itoa(got) != code {
		ts.Fatalf("%s %s: exit code %d, want %s", filepath.Base(name), strings.Join(args, " "), got, code)
	}
}

func (w *world) registry(ts *testscript.TestScript, name string) *registry.Registry {
	switch name {
	case "up":
		return w.upstream
	case "mirror":
		return w.mirror
	}
	ts.Fatalf("there is no registry %q", name)
	return nil
}

func breakDown(ts *testscript.TestScript, _ bool, args []string) {
	var f registry.Fault
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		n, _ := strconv.Atoi(value)
		switch name {
		case "status":
			f.Status = n
		case "after":
			f.After = n
		case "times":
			f.Times = n
		case "method":
			f.Match.Method = value
		case "path":
			f.Match.Path = value
		case "query":
			f.Match.Query = value
		case "body":
			f.Match.Body = value
		case "tamper":
			f.Tamper, f.TamperAt = true, int64(n)
		case "retryafter":
			f.Header = map[string]string{"Retry-After": value}
		case "bodylimit":
			f.BodyLimit = int64(n)
		case "reset":
			f.Reset = true
		default:
			ts.Fatalf("unknown fault %q", arg)
		}
	}
	of(ts).registry(ts, args[0]).Fail(f)
}

func heal(ts *testscript.TestScript, _ bool, args []string) { of(ts).registry(ts, args[0]).Heal() }

func startRegistry(ts *testscript.TestScript, _ bool, args []string) {
	kind := map[string]registry.Kind{"distribution": registry.Distribution, "referrers": registry.Referrers}[args[1]]
	ts.Setenv(args[0], registry.Start(of(ts).t, registry.Options{Kind: kind}).Host)
}

func flip(ts *testscript.TestScript, _ bool, args []string) {
	name := ts.MkAbs(args[0])
	data, err := os.ReadFile(name)
	ts.Check(err)
	at, err := strconv.Atoi(args[1])
	if err != nil {
		at = bytes.Index(data, []byte(args[1]))
	}
	if at < 0 {
		at += len(data)
	}
	data[at] ^= 0xff
	ts.Check(os.WriteFile(name, data, 0o600))
}

func truncate(ts *testscript.TestScript, _ bool, args []string) {
	name := ts.MkAbs(args[0])
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	if n < 0 {
		info, err := os.Stat(name)
		ts.Check(err)
		n += info.Size()
	}
	ts.Check(os.Truncate(name, n))
}

func tool(ts *testscript.TestScript, _ bool, args []string) {
	if slices.Contains([]string{"cosign", "cosign3", "crane", "regctl"}, args[1]) {
		expectCode(ts, args[0], toolchain.Path(of(ts).t, args[1]), args[2:])
		return
	}
	name, err := exec.LookPath(args[1])
	ts.Check(err)
	expectCode(ts, args[0], name, args[2:])
}

// forEach runs a tool for each line of a file, which takes the place of {}.
func forEach(ts *testscript.TestScript, neg bool, args []string) {
	lines := strings.Fields(ts.ReadFile(args[0]))
	if len(lines) == 0 {
		ts.Fatalf("%s is empty", args[0])
	}
	for _, line := range lines {
		each := slices.Clone(args[1:])
		for i := range each {
			each[i] = strings.ReplaceAll(each[i], "{}", line)
		}
		tool(ts, neg, each)
	}
}

func upImage(ts *testscript.TestScript, _ bool, args []string) {
	seed, err := strconv.ParseUint(args[1], 10, 64)
	ts.Check(err)
	built, err := images.Build(images.Spec{Seed: seed})
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = built.Push(ctx, of(ts).upstream, args[0])
	ts.Check(err)
}

// mounted runs vdo-bundle in a mount namespace with a tmpfs at ./small.
func mounted(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.MkdirAll(ts.MkAbs("small"), 0o755))
	script := `mount -t tmpfs -o ` + args[1] + ` none small && exec "$0" "$@"`
	expectCode(ts, args[0], "unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", script, binary}, of(ts).expand(args[2:])...))
}

// dropBlob removes the blob of a folder that holds a text, or the largest.
func dropBlob(ts *testscript.TestScript, _ bool, args []string) {
	files, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "blobs", "sha256", "*"))
	ts.Check(err)
	chosen, size := "", 0
	for _, f := range files {
		data, err := os.ReadFile(f)
		ts.Check(err)
		if (args[1] == "largest" || bytes.Contains(data, []byte(args[1]))) && len(data) > size {
			chosen, size = f, len(data)
		}
	}
	ts.Check(os.Remove(chosen))
}

func newKey(ts *testscript.TestScript, _ bool, args []string) { of(ts).key(of(ts).t, args[0]) }

func smaller(ts *testscript.TestScript, _ bool, args []string) {
	a, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	b, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if a.Size() >= b.Size() {
		ts.Fatalf("%s has %d bytes, %s %d", args[0], a.Size(), args[1], b.Size())
	}
}
