// Command demo runs the main job on this machine, from nothing but Go: a signed
// bundle of drivers is built on a connected host, carried across a gap as one
// file, verified, pushed into a private mirror, and installed, configured and
// upgraded by the operator in a real Kubernetes control plane; a tampered bundle is
// refused. Every command is printed as it is run, with its real output.
//
//	make demo             # ends with nothing left behind
//	KEEP=1 make demo      # leaves the world running until Ctrl-C
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	d := &demo{out: newPrinter(os.Stdout), keep: os.Getenv("KEEP") != "", stopOperator: func() {}}
	err := d.run(ctx)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted:
		fmt.Fprintln(os.Stderr, "demo: interrupted; nothing is left behind")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "demo: failed:", err)
		os.Exit(1)
	}
}

// demo is one run.
type demo struct {
	out  *printer
	keep bool

	dir       string // of everything
	connected *world.Shell
	isolated  *world.Shell
	upstream  *world.Upstream
	site      *world.Site
	began     time.Time

	stopOperator func()
}

// run goes through the steps and takes everything away again.
func (d *demo) run(ctx context.Context) (err error) {
	if d.dir, err = os.MkdirTemp("", "vdo-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	if err := d.build(ctx); err != nil {
		return err
	}
	d.began = time.Now()
	if err := d.startWorlds(ctx); err != nil {
		return err
	}
	defer d.upstream.Close()
	defer d.site.Close()
	defer func() { d.stopOperator() }()
	for _, step := range []func(context.Context) error{
		d.bundle, d.carry, d.land, d.startOperator, d.install, d.upgrade, d.tamper,
	} {
		if err := step(ctx); err != nil {
			d.explain()
			return err
		}
	}
	d.out.heading("Done in %s", time.Since(d.began).Round(time.Second))
	if d.keep {
		d.wait(ctx)
	}
	return nil
}

// build makes the project's programs and what the world consists of.
func (d *demo) build(ctx context.Context) error {
	d.out.heading("Building")
	bin := filepath.Join(d.dir, "bin")
	for _, dir := range []string{bin, d.path("connected"), d.path("site")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	build := &world.Shell{Dir: toolchain.Root(), Env: []string{"CGO_ENABLED=0"}, Echo: d.out.command}
	if _, err := build.Run(ctx, "go", "build", "-o", bin+"/", "./bundler/cmd/vdo-bundle", "./operator/cmd/vdo-operator"); err != nil {
		return err
	}
	kubectl, err := toolchain.Ensure(ctx, os.Stdout, toolchain.Tool{Name: "kubectl"})
	if err != nil {
		return err
	}
	path := []string{bin, filepath.Dir(kubectl)}
	d.connected = &world.Shell{
		Dir: d.path("connected"), Path: path, Echo: d.out.command,
		Env: []string{"COSIGN_PASSWORD=a-password-for-the-demo", "HOME=" + d.path("connected"), "DOCKER_CONFIG=" + d.path("connected")},
	}
	d.isolated = &world.Shell{
		Dir: d.path("site"), Path: path, Echo: d.out.command,
		Env: []string{
			"HOME=" + d.path("site"), "DOCKER_CONFIG=" + d.path("site/docker"),
			"KUBECONFIG=" + d.path("site/cluster/kubeconfig"), "KUBECACHEDIR=" + d.path("site/cache"),
		},
	}
	return nil
}

func (d *demo) path(name string) string { return filepath.Join(d.dir, filepath.FromSlash(name)) }

// The releases of the demo: what the first bundle and the second one hold.
var (
	firstBundle  = []string{"cpi@1.33.1", "csi@3.5.1"}
	secondBundle = []string{"cpi@1.33.1", "csi@3.7.3"}
	everything   = []string{"cpi@1.33.1", "csi@3.5.1", "csi@3.7.3", "snapshot-controller@8.2.0"}
)

func (d *demo) startWorlds(ctx context.Context) (err error) {
	program := d.path("stand-in")
	if err := images.Compile(ctx, toolchain.Root(), "./scripts/demo/standin", images.Linux[0], program); err != nil {
		return err
	}
	manifests := upstream.Find()
	if d.upstream, err = world.NewUpstream(ctx, world.UpstreamOptions{
		Dir: d.dir, Manifests: manifests, Releases: everything, Program: program,
	}); err != nil {
		return err
	}
	if d.site, err = world.NewSite(ctx, world.SiteOptions{Dir: d.path("site"), Progress: os.Stdout}); err != nil {
		d.upstream.Close()
		return err
	}
	d.out.heading("The world")
	if d.upstream.Real {
		d.out.say("upstream manifests: the real ones, from %s", manifests)
	} else {
		d.out.say("upstream manifests: stand-ins of the same shape (VDO_UPSTREAM names a folder of the real ones)")
	}
	d.out.say("upstream images:    %d stand-ins under their real names, at %s (TLS)", len(d.upstream.Images), d.upstream.Registry.Host)
	d.out.say("private mirror:     %s (TLS by a private CA, login)", d.site.Mirror.Host)
	d.out.say("vCenter:            %s, version 8.0.3 (govmomi's simulator)", d.site.VCenter.Address())
	d.out.say("Kubernetes:         v%s, a real control plane; 3 nodes that KWOK answers for", d.site.Cluster.Version())
	return nil
}

// bundle is the connected host: choose, fetch, sign.
func (d *demo) bundle(ctx context.Context) error {
	d.out.heading("On the connected host: choose, fetch and sign")
	return d.sequence(ctx, d.connected,
		words("vdo-bundle keygen -o vdo"),
		d.lock(firstBundle, "lock.yaml"),
		append(words("vdo-bundle pull --lock lock.yaml -o drivers.tar"), d.upstream.Flags()...),
		words("vdo-bundle sign drivers.tar --key vdo.key"),
		words("vdo-bundle inspect drivers.tar"),
	)
}

func (d *demo) lock(releases []string, out string) []string {
	line := words("vdo-bundle lock -o " + out)
	for _, r := range releases {
		line = append(line, "--release", r)
	}
	return append(line, d.upstream.Flags()...)
}

// carry takes one file and the public key across the gap.
func (d *demo) carry(context.Context) error {
	d.out.heading("Across the gap: one file, and once the public key")
	for _, name := range []string{"drivers.tar", "vdo.pub"} {
		if err := copyFile(d.path("connected/"+name), d.path("site/"+name)); err != nil {
			return err
		}
	}
	info, err := os.Stat(d.path("site/drivers.tar"))
	if err != nil {
		return err
	}
	d.out.say("drivers.tar, %.1f MiB", float64(info.Size())/(1<<20))
	return nil
}

func (d *demo) reference() string { return d.site.Mirror.Host + "/vdo/drivers:stable" }

// land verifies the bundle and pushes it into the mirror.
func (d *demo) land(ctx context.Context) error {
	d.out.heading("In the site: verify, and land it in the mirror")
	return d.sequence(ctx, d.isolated,
		words("vdo-bundle verify drivers.tar --key vdo.pub"),
		words("vdo-bundle push drivers.tar "+d.reference()+" --key vdo.pub --ca-file mirror-ca.crt"),
	)
}

const namespace = "vmware-system-vdo"

// startOperator installs the operator's kinds and rights and runs it beside the
// cluster with the rights of its own account.
func (d *demo) startOperator(ctx context.Context) error {
	d.out.heading("In the site: the operator, with its own account's rights")
	deploy := filepath.Join(toolchain.Root(), "deploy")
	if err := d.sequence(ctx, d.isolated,
		words("kubectl apply -f "+filepath.Join(deploy, "crds")),
		words("kubectl apply -f "+filepath.Join(deploy, "rbac.yaml")),
		words("kubectl -n "+namespace+" create configmap vdo-trust --from-file=vdo.pub"),
		words("kubectl -n "+namespace+" create configmap vdo-registry-ca --from-file=ca.crt=mirror-ca.crt"),
		words("kubectl -n "+namespace+" create secret generic vdo-registry --type=kubernetes.io/dockerconfigjson --from-file=.dockerconfigjson=docker/config.json"),
	); err != nil {
		return err
	}
	kubeconfig, err := d.operatorKubeconfig(ctx)
	if err != nil {
		return err
	}
	stop, err := d.isolated.Start(d.path("site/operator.log"), "vdo-operator", "--kubeconfig", kubeconfig,
		"--namespace", namespace, "--leader-elect=false", "--metrics-bind-address", "0", "--health-probe-bind-address", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.stopOperator = stop
	return nil
}

// operatorKubeconfig writes a kubeconfig with a token of the operator's account.
func (d *demo) operatorKubeconfig(ctx context.Context) (string, error) {
	quiet := *d.isolated
	quiet.Echo = nil
	token, err := quiet.Run(ctx, "kubectl", "-n", namespace, "create", "token", "vdo-operator", "--duration=24h")
	if err != nil {
		return "", err
	}
	if err := copyFile(d.path("site/cluster/kubeconfig"), d.path("site/operator.kubeconfig")); err != nil {
		return "", err
	}
	_, err = quiet.Run(ctx, "kubectl", "--kubeconfig", "operator.kubeconfig", "config", "set-credentials", "admin", "--token", strings.TrimSpace(token))
	return "operator.kubeconfig", err
}

// install points the operator at the mirror and the vCenter.
func (d *demo) install(ctx context.Context) error {
	d.out.heading("In the site: point the operator at the mirror and the vCenter")
	files := d.site.Resources(world.ResourceOptions{Namespace: namespace, Reference: d.reference()})
	if err := os.WriteFile(d.path("site/site.yaml"), []byte(files), 0o600); err != nil {
		return err
	}
	return d.sequence(ctx, d.isolated,
		words("kubectl apply -f site.yaml"),
		words("kubectl -n "+namespace+" wait --for=condition=Ready vdoconfig/site --timeout=300s"),
		words("kubectl -n "+namespace+" get driverbundles,vspherecloudconfigs,vdoconfigs"),
		words("kubectl get nodes -o custom-columns=NAME:.metadata.name,PROVIDER:.spec.providerID,TAINTS:.spec.taints[*].key"),
		words("kubectl get daemonsets,deployments -A -o custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,READY:.status.numberReady,REPLICAS:.status.readyReplicas,IMAGE:.spec.template.spec.containers[0].image"),
	)
}

// upgrade pushes a second bundle under the same tag.
func (d *demo) upgrade(ctx context.Context) error {
	d.out.heading("A newer bundle for the same Kubernetes: built, carried, pushed under the same tag")
	if err := d.sequence(ctx, d.connected,
		d.lock(secondBundle, "lock2.yaml"),
		append(words("vdo-bundle pull --lock lock2.yaml --sign-key vdo.key -o drivers2.tar"), d.upstream.Flags()...),
	); err != nil {
		return err
	}
	if err := copyFile(d.path("connected/drivers2.tar"), d.path("site/drivers2.tar")); err != nil {
		return err
	}
	return d.sequence(ctx, d.isolated,
		words("vdo-bundle push drivers2.tar "+d.reference()+" --key vdo.pub --ca-file mirror-ca.crt"),
		words("kubectl -n "+namespace+" annotate driverbundle site reconcile.vdo.vmware.com/requestedAt=now --overwrite"),
		words("kubectl -n "+namespace+` wait --for=jsonpath={.status.drivers[?(@.driver=="csi")].version}=3.7.3 vdoconfig/site --timeout=300s`),
		words("kubectl -n "+namespace+" wait --for=condition=Ready vdoconfig/site --timeout=300s"),
		words("kubectl -n "+namespace+" get vdoconfigs"),
		words("kubectl -n "+namespace+" get events --sort-by=.lastTimestamp -o custom-columns=OBJECT:.involvedObject.kind,REASON:.reason,MESSAGE:.message"),
	)
}

// tamper shows what a changed byte does on each side of the mirror.
func (d *demo) tamper(ctx context.Context) error {
	d.out.heading("A byte changed on the way")
	if err := flipByte(d.path("site/drivers2.tar"), d.path("site/tampered.tar")); err != nil {
		return err
	}
	if err := d.refused(ctx, d.isolated, words("vdo-bundle verify tampered.tar --key vdo.pub")); err != nil {
		return err
	}
	d.out.heading("A bundle signed by somebody else, pushed under the tag")
	if err := d.sequence(ctx, d.connected,
		words("vdo-bundle keygen -o stranger"),
		d.lock(everything[:3], "lock3.yaml"), // other contents: what vdo.key signed is trusted, whoever pushes it
		append(words("vdo-bundle pull --lock lock3.yaml --sign-key stranger.key -o stranger.tar"), d.upstream.Flags()...),
	); err != nil {
		return err
	}
	if err := copyFile(d.path("connected/stranger.tar"), d.path("site/stranger.tar")); err != nil {
		return err
	}
	return d.sequence(ctx, d.isolated,
		words("vdo-bundle push stranger.tar "+d.reference()+" --ca-file mirror-ca.crt"),
		words("kubectl -n "+namespace+" annotate driverbundle site reconcile.vdo.vmware.com/requestedAt=again --overwrite"),
		words("kubectl -n "+namespace+" wait --for=condition=Ready=False driverbundle/site --timeout=60s"),
		words(`kubectl -n `+namespace+` get driverbundle site -o jsonpath={.status.conditions[?(@.type=="Ready")].message}{"\n"}`),
		words("kubectl -n "+namespace+" get vdoconfigs"),
	)
}

// wait leaves the world running.
func (d *demo) wait(ctx context.Context) {
	d.out.heading("KEEP is set: everything goes on running until Ctrl-C")
	d.out.say("export KUBECONFIG=%s", d.path("site/cluster/kubeconfig"))
	d.out.say("export DOCKER_CONFIG=%s", d.path("site/docker"))
	d.out.say("mirror   %s, CA %s", d.site.Mirror.Host, d.path("site/mirror-ca.crt"))
	d.out.say("operator log %s", d.path("site/operator.log"))
	<-ctx.Done()
}

// explain shows what a person would look at after a failure.
func (d *demo) explain() {
	if d.site == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d.out.heading("What went wrong")
	_, _ = d.isolated.Run(ctx, "kubectl", "-n", namespace, "get", "driverbundles,vspherecloudconfigs,vdoconfigs", "-o", "yaml")
	if d.site.Drivers != nil && d.site.Drivers.Err() != nil {
		d.out.say("stand-in drivers: %v", d.site.Drivers.Err())
	}
	if log, err := os.ReadFile(d.path("site/operator.log")); err == nil {
		d.out.say("the operator's log ends with:\n%s", log[max(0, len(log)-4<<10):])
	}
}

// sequence runs commands one after another until one fails.
func (d *demo) sequence(ctx context.Context, shell *world.Shell, lines ...[]string) error {
	for _, line := range lines {
		if _, err := shell.Run(ctx, line[0], line[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// refused runs a command that has to fail.
func (d *demo) refused(ctx context.Context, shell *world.Shell, line []string) error {
	_, err := shell.Run(ctx, line[0], line[1:]...)
	var exit *world.Exit
	if errors.As(err, &exit) && exit.Code > 0 {
		d.out.say("(exit code %d)", exit.Code)
		return nil
	}
	return errors.Join(fmt.Errorf("%s was accepted", strings.Join(line, " ")), err)
}

func words(line string) []string { return strings.Fields(line) }

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// flipByte copies a file and inverts one byte in its middle.
func flipByte(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	data[len(data)/2] ^= 0xff
	return os.WriteFile(to, data, 0o600)
}
