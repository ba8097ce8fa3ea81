package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

// The releases of the demo, in the first bundle and the second one.
var (
	firstBundle  = []string{"cpi@1.33.1", "csi@3.5.1"}
	secondBundle = []string{"cpi@1.33.1", "csi@3.7.3"}
	everything   = []string{"cpi@1.33.1", "csi@3.5.1", "csi@3.7.3", "snapshot-controller@8.2.0"}
)

// registries is the output of the program of that name, and site likewise.
type registries struct {
	Upstream, Mirror string
	Images           int
	Flags            []string
}

type site struct{ VCenter, Kubernetes, Kubeconfig, Administrator, Password string }

// findManifests is the first step, so that a wrong VDO_UPSTREAM fails before any build.
func (d *demo) findManifests(context.Context) (err error) {
	d.manifests, err = upstream.Find()
	return err
}

func (d *demo) startRegistries(ctx context.Context) error {
	args := []string{"-connected", d.path("connected"), "-site", d.path("site"),
		"-manifests", d.manifests, "-program", filepath.Join(binDir(), "driver"), "-releases", strings.Join(everything, ",")}
	if d.sip {
		args = append(args, "-jump-host", jumpHost)
	}
	if err := d.start(ctx, program{name: "registries", args: args, facts: &d.registries}); err != nil {
		return err
	}
	d.began = time.Now()
	d.out.heading("The world")
	if d.manifests != "" {
		d.out.say("upstream manifests: the real ones, from %s", d.manifests)
	} else {
		d.out.say("upstream manifests: stand-ins with the same objects (VDO_UPSTREAM names a directory of the real ones)")
	}
	d.out.say("upstream images:    %d stand-ins under their real names, at %s (TLS)", d.registries.Images, d.registries.Upstream)
	d.out.say("private mirror:     %s (TLS by a private CA, login)", d.registries.Mirror)
	return nil
}

func (d *demo) startSite(ctx context.Context) error {
	if err := d.start(ctx, program{name: "site", facts: &d.site, args: []string{"-dir", d.path("site"), "-namespace", namespace, "-reference", d.reference()}}); err != nil {
		return err
	}
	d.out.heading("The site's cluster")
	d.out.say("vCenter:            %s, version 8.0.3 (govmomi's simulator)", d.site.VCenter)
	d.out.say("Kubernetes:         v%s, a real control plane; 3 nodes that KWOK answers for", d.site.Kubernetes)
	return nil
}

// bundle shows the connected host: choose, fetch, sign.
func (d *demo) bundle(ctx context.Context) error {
	d.out.heading("On the connected host: choose, fetch and sign")
	return d.sequence(ctx, d.connected,
		"vdo-bundle keygen -o vdo",
		d.lock(firstBundle, "lock.yaml"),
		"vdo-bundle pull --lock lock.yaml -o drivers.tar "+d.flags(),
		"vdo-bundle sign drivers.tar --key vdo.key",
		"vdo-bundle inspect drivers.tar",
	)
}

func (d *demo) lock(releases []string, out string) string {
	return "vdo-bundle lock -o " + out + " --release " + strings.Join(releases, " --release ") + " " + d.flags()
}

// flags lead vdo-bundle to the stand-in registries.
func (d *demo) flags() string { return strings.Join(d.registries.Flags, " ") }

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
	d.out.say("drivers.tar, %s", humanize.Bytes(uint64(info.Size()))) //nolint:gosec // a size is not negative
	return nil
}

func (d *demo) reference() string { return d.registries.Mirror + "/vdo/drivers:stable" }

// land verifies the bundle and pushes it into the mirror.
func (d *demo) land(ctx context.Context) error {
	d.out.heading("In the site: verify, and land it in the mirror")
	return d.sequence(ctx, d.isolated,
		"vdo-bundle verify drivers.tar --key vdo.pub",
		"vdo-bundle push drivers.tar "+d.reference()+" --key vdo.pub --ca-file mirror-ca.crt",
	)
}

const namespace = "vmware-system-vdo"

// prepare completes the configuration, creates the drivers' account and checks both, before the operator runs. Only
// the environment has the administrator's password.
func (d *demo) prepare(ctx context.Context) error {
	d.out.heading("In the site: the configuration, and an account with the least privileges")
	d.out.say("site.yaml exists already, with the addresses of mirror and vCenter: configure completes it")
	admin := *d.isolated
	admin.Env = append(slices.Clip(admin.Env), "VDO_VCENTER_PASSWORD="+d.site.Password)
	if err := d.sequence(ctx, &admin,
		"vdoctl configure -o site.yaml --upgrade Automatic --yes",
		"vdoctl users create -f site.yaml --username "+d.site.Administrator+" --principal drivers@vsphere.local --yes",
	); err != nil {
		return err
	}
	return d.sequence(ctx, d.isolated, "vdoctl check --from-file site.yaml")
}

// startOperator installs the operator's CRDs and permissions, and runs it beside the cluster under its own account.
func (d *demo) startOperator(ctx context.Context) error {
	d.out.heading("In the site: the operator, with its own account's rights")
	d.out.say("this bundle holds no operator, which runs beside the cluster; with one that does: vdoctl deploy")
	if err := os.Symlink(filepath.Join(toolchain.Root(), "deploy"), d.path("site/deploy")); err != nil {
		return err
	}
	if err := d.sequence(ctx, d.isolated,
		"kubectl apply -f deploy/crds",
		"kubectl apply -f deploy/driver-namespaces.yaml",
		"kubectl apply -f deploy/namespaces.yaml -f deploy/rbac.yaml",
		"kubectl -n "+namespace+" create configmap vdo-trust --from-file=vdo.pub",
		"kubectl -n "+namespace+" create configmap vdo-registry-ca --from-file=ca.crt=mirror-ca.crt",
		"kubectl -n "+namespace+" create secret generic vdo-registry --type=kubernetes.io/dockerconfigjson --from-file=.dockerconfigjson=docker/config.json",
	); err != nil {
		return err
	}
	kubeconfig, err := d.kubeconfigOf(ctx, namespace, "vdo-operator")
	if err != nil {
		return err
	}
	args := strings.Fields("--kubeconfig " + kubeconfig + " --namespace " + namespace + " --leader-elect" +
		" --metrics-bind-address 0 --health-probe-bind-address 127.0.0.1:0")
	d.out.command(shell.CommandLine("vdo-operator", args) + " &")
	return d.start(ctx, program{name: "vdo-operator", args: args, env: d.isolated.Env})
}

// kubeconfigOf writes a kubeconfig that acts as an account, and returns its name.
func (d *demo) kubeconfigOf(ctx context.Context, namespace, account string) (string, error) {
	name := strings.TrimPrefix(account, "vdo-") + ".kubeconfig"
	if err := copyFile(d.path("site/cluster/kubeconfig"), d.path("site/"+name)); err != nil {
		return "", err
	}
	quiet := *d.isolated
	quiet.Echo = nil
	who := "system:serviceaccount:" + namespace + ":" + account
	_, err := quiet.Run(ctx, "kubectl", "--kubeconfig", name, "config", "set", "users.user.act-as", who)
	is, user := "", "jsonpath={.status.userInfo.username}"
	if err == nil {
		is, err = quiet.Run(ctx, "kubectl", "--kubeconfig", name, "auth", "whoami", "-o", user)
	}
	if err == nil && is != who {
		err = fmt.Errorf("%s acts as %s, not as %s", name, is, who)
	}
	return name, err
}

// install configures the operator for the mirror and the vCenter.
func (d *demo) install(ctx context.Context) error {
	d.out.heading("In the site: point the operator at the mirror and the vCenter")
	if err := d.sequence(ctx, d.isolated,
		"kubectl apply -f site.accounts.yaml",
		"kubectl apply -f site.yaml",
		"kubectl -n "+namespace+" wait --for=condition=Ready vdoconfig/site --timeout=300s",
		"kubectl -n "+namespace+" get driverbundles,vspherecloudconfigs,vdoconfigs",
		"kubectl get nodes -o custom-columns=NAME:.metadata.name,PROVIDER:.spec.providerID,TAINTS:.spec.taints[*].key",
		"kubectl get daemonsets,deployments -A -o custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,READY:.status.numberReady,REPLICAS:.status.readyReplicas,IMAGE:.spec.template.spec.containers[0].image",
		"vdoctl check --only vcenter-privileges",
	); err != nil {
		return err
	}
	return d.status(ctx)
}

// status shows the whole state on one screen. The operator runs beside this cluster, whose nodes run nothing: so
// vdoctl reports its missing Deployment.
func (d *demo) status(ctx context.Context) error {
	_, err := d.isolated.Run(ctx, "vdoctl", "status")
	if exit, ok := errors.AsType[*shell.Exit](err); ok && exit.Code == notReady {
		d.out.say("(exit code %d: here the operator runs beside the cluster, not in it)", exit.Code)
		return nil
	}
	return err
}

// notReady is the exit code of vdoctl status if a component is not ready.
const notReady = 8

// upgrade pushes a second bundle under the same tag.
func (d *demo) upgrade(ctx context.Context) error {
	d.out.heading("A newer bundle for the same Kubernetes: built, carried, pushed under the same tag")
	if err := d.sequence(ctx, d.connected,
		d.lock(secondBundle, "lock2.yaml"),
		"vdo-bundle pull --lock lock2.yaml --sign-key vdo.key -o drivers2.tar "+d.flags(),
	); err != nil {
		return err
	}
	if err := copyFile(d.path("connected/drivers2.tar"), d.path("site/drivers2.tar")); err != nil {
		return err
	}
	return d.sequence(ctx, d.isolated,
		"vdo-bundle push drivers2.tar "+d.reference()+" --key vdo.pub --ca-file mirror-ca.crt",
		"kubectl -n "+namespace+" annotate driverbundle site reconcile.vdo.vmware.com/requestedAt=now --overwrite",
		"kubectl -n "+namespace+` wait --for=jsonpath={.status.drivers[?(@.driver=="csi")].version}=3.7.3 vdoconfig/site --timeout=300s`,
		"kubectl -n "+namespace+" wait --for=condition=Ready vdoconfig/site --timeout=300s",
		"kubectl -n "+namespace+" get vdoconfigs",
		"kubectl -n "+namespace+" get events --sort-by=.metadata.creationTimestamp -o custom-columns=OBJECT:.involvedObject.kind,REASON:.reason,MESSAGE:.message",
	)
}

// tamper shows the effect of a changed byte on each side of the mirror.
func (d *demo) tamper(ctx context.Context) error {
	d.out.heading("A byte changed on the way")
	if err := flipByte(d.path("site/drivers2.tar"), d.path("site/tampered.tar")); err != nil {
		return err
	}
	if err := d.refused(ctx, d.isolated, "vdo-bundle verify tampered.tar --key vdo.pub"); err != nil {
		return err
	}
	d.out.heading("A bundle with another signature, pushed under the tag")
	if err := d.sequence(ctx, d.connected,
		"vdo-bundle keygen -o stranger",
		d.lock(everything[:3], "lock3.yaml"), // different contents: a bundle signed by vdo.key is trusted, whoever pushes it
		"vdo-bundle pull --lock lock3.yaml --sign-key stranger.key -o stranger.tar "+d.flags(),
	); err != nil {
		return err
	}
	if err := copyFile(d.path("connected/stranger.tar"), d.path("site/stranger.tar")); err != nil {
		return err
	}
	return d.sequence(ctx, d.isolated,
		"vdo-bundle push stranger.tar "+d.reference()+" --ca-file mirror-ca.crt",
		"kubectl -n "+namespace+" annotate driverbundle site reconcile.vdo.vmware.com/requestedAt=again --overwrite",
		"kubectl -n "+namespace+" wait --for=condition=Ready=False driverbundle/site --timeout=60s",
		`kubectl -n `+namespace+` get driverbundle site -o jsonpath={.status.conditions[?(@.type=="Ready")].message}{"\n"}`,
		"kubectl -n "+namespace+" get vdoconfigs",
	)
}

// explain shows the logs that help after a failure.
func (d *demo) explain() {
	if d.site.Kubeconfig == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d.out.heading("What went wrong")
	_, _ = d.isolated.Run(ctx, "kubectl", "-n", namespace, "get", "driverbundles,vspherecloudconfigs,vdoconfigs", "-o", "yaml")
	if d.sip {
		_, _ = d.isolated.Run(ctx, "kubectl", "get", "sipclusters,baremetalhosts", "-A", "-o", "yaml")
	}
	d.stop() // then the site reports its drivers' errors
	d.running.Wait()
	for _, name := range []string{"site.log", "vdo-operator.log", "vdo-operator-sip.log"} {
		if log, err := os.ReadFile(d.path(name)); err == nil && len(log) > 0 {
			d.out.say("%s ends with:\n%s", name, log[max(0, len(log)-4<<10):])
		}
	}
}

// sequence runs commands one after another until one fails.
func (d *demo) sequence(ctx context.Context, sh *shell.Shell, lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if _, err := sh.Run(ctx, words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// refused runs a command that has to fail.
func (d *demo) refused(ctx context.Context, sh *shell.Shell, line string) error {
	err := d.sequence(ctx, sh, line)
	if exit, ok := errors.AsType[*shell.Exit](err); ok && exit.Code > 0 {
		d.out.say("(exit code %d)", exit.Code)
		return nil
	}
	return errors.Join(fmt.Errorf("%s was accepted", line), err)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

func flipByte(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	data[len(data)/2] ^= 0xff
	return os.WriteFile(to, data, 0o600)
}
