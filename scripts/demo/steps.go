package main

import (
	"context"
	"embed"
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

// files are the demo's lines, see [demo.play], and what the site applies.
//
//go:embed play *.yaml
var files embed.FS

const releases = "cpi@1.33.1,csi@3.5.1,csi@3.7.3,snapshot-controller@8.2.0"

// registries is the output of the program of that name, and site likewise.
type registries struct {
	Upstream, Mirror string
	Images           int
	Flags            []string
}

type site struct{ VCenter, Kubernetes, Kubeconfig, Administrator, Password string }

const namespace = "vmware-system-vdo"

// findManifests is the first step, so that a wrong VDO_UPSTREAM fails before any build.
func (d *demo) findManifests(context.Context) (err error) {
	d.manifests, err = upstream.Find()
	return err
}

func (d *demo) startRegistries(ctx context.Context) error {
	args := []string{"-connected", d.path("connected"), "-site", d.path("site"),
		"-manifests", d.manifests, "-program", filepath.Join(binDir(), "driver"), "-releases", releases}
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
	return os.Symlink(filepath.Join(toolchain.Root(), "deploy"), d.path("site/deploy"))
}

// value returns the value of a variable in the demo's files.
func (d *demo) value(name string) string {
	return map[string]string{
		"FLAGS":  strings.Join(d.registries.Flags, " "), // they lead vdo-bundle to the stand-in registries
		"BUNDLE": d.reference(), "SERVICES": d.registries.Mirror + "/vdo/services:stable",
		"JUMPHOST": d.registries.Upstream + "/" + jumpHost, "ADMINISTRATOR": d.site.Administrator, "KEY": d.key, "HOSTS": showHosts,
	}[name]
}

func (d *demo) reference() string { return d.registries.Mirror + "/vdo/drivers:stable" }

// play returns the step that follows a file of lines: comments, and what [demo.do] knows.
func (d *demo) play(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		text, err := files.ReadFile("play/" + name + ".txt")
		if err != nil {
			return err
		}
		for line := range strings.Lines(os.Expand(string(text), d.value)) {
			words := strings.Fields(line)
			if len(words) == 0 || words[0] == "#" {
				continue
			}
			if err := d.do(ctx, words[0], words[1:]); err != nil {
				return err
			}
		}
		return nil
	}
}

// do follows a line: a heading, a remark, a command on the connected host or in the site, or another action.
func (d *demo) do(ctx context.Context, verb string, words []string) (err error) {
	switch verb {
	case "==":
		d.out.heading("%s", strings.Join(words, " "))
	case "say":
		d.out.say("%s", strings.Join(words, " "))
	case "connected$":
		_, err = d.connected.Run(ctx, words[0], words[1:]...)
	case "site$":
		_, err = d.isolated.Run(ctx, words[0], words[1:]...)
	case "admin$": // in the site, with the administrator's password
		admin := *d.isolated
		admin.Env = append(slices.Clip(admin.Env), "VDO_VCENTER_PASSWORD="+d.site.Password)
		_, err = admin.Run(ctx, words[0], words[1:]...)
	case "refused$": // in the site
		_, err = d.isolated.Run(ctx, words[0], words[1:]...)
		exit, ok := errors.AsType[*shell.Exit](err)
		if !ok || exit.Code <= 0 {
			return errors.Join(fmt.Errorf("%s was accepted", strings.Join(words, " ")), err)
		}
		d.out.say("(exit code %d)", exit.Code)
		return nil
	case "carry": // across the gap
		for _, name := range words {
			err = errors.Join(err, copyFile(d.path("connected/"+name), d.path("site/"+name)))
		}
	case "size":
		info, err := os.Stat(d.path("site/" + words[0]))
		if err != nil {
			return err
		}
		d.out.say("%s, %s", words[0], humanize.Bytes(uint64(info.Size()))) //nolint:gosec // a size is not negative
	case "damage": // writes the first file as the second one
		err = flipByte(d.path("site/"+words[0]), d.path("site/"+words[1]))
	case "operator": // NAMESPACE ACCOUNT ARGUMENTS
		err = d.startOperator(ctx, words[0], words[1], words[2:])
	default:
		err = fmt.Errorf("the demo cannot %s", verb)
	}
	return err
}

// startOperator runs the operator beside the cluster, with the rights of an account.
func (d *demo) startOperator(ctx context.Context, namespace, account string, args []string) error {
	kubeconfig, err := d.kubeconfigOf(ctx, namespace, account)
	if err != nil {
		return err
	}
	args = append(args, "--kubeconfig", kubeconfig, "--metrics-bind-address", "0", "--health-probe-bind-address", "127.0.0.1:0")
	d.out.command(shell.CommandLine("vdo-operator", args) + " &")
	return d.start(ctx, program{name: "vdo-operator", log: account, args: args, env: d.isolated.Env})
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
