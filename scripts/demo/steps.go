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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/site"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

// files are the demo's lines, see [demo.play], and what the site applies.
//
//go:embed play *.yaml
var files embed.FS

var releases = []string{"cpi@1.33.1", "cpi@1.34.0", "csi@3.5.1", "csi@3.7.3", "snapshot-controller@8.2.0"}

const namespace = "vmware-system-vdo"

// findManifests is the first step, so that a wrong VDO_UPSTREAM fails before any build.
func (d *demo) findManifests(context.Context) (err error) {
	d.manifests, err = upstream.Find()
	return err
}

func (d *demo) startRegistries(ctx context.Context) (err error) {
	o := world.UpstreamOptions{
		Dir: d.path("connected"), Manifests: d.manifests, Releases: releases,
		Program: filepath.Join(binDir(), "driver"),
	}
	if d.sip {
		o.JumpHost = jumpHost
	}
	if d.upstream, err = world.NewUpstream(ctx, o); err != nil {
		return err
	}
	if d.mirror, err = world.StartMirror(d.path("site"), ""); err != nil {
		return err
	}
	d.began = time.Now()
	heading("The world")
	if d.manifests != "" {
		say("upstream manifests: the real ones, from %s", d.manifests)
	} else {
		say("upstream manifests: stand-ins with the same objects (VDO_UPSTREAM names a directory of the real ones)")
	}
	say("upstream images:    %d stand-ins under their real names, at %s (TLS)", len(d.upstream.Images), d.upstream.Registry.Host)
	say("private mirror:     %s (TLS by a private CA, login)", d.mirror.Host)
	return nil
}

func (d *demo) startSite(ctx context.Context) (err error) {
	if d.site, err = site.New(ctx, site.Options{Dir: d.path("site"), NoMirror: true}); err != nil {
		return err
	}
	heading("The site's cluster")
	say("vCenter:            %s, version 8.0.3 (govmomi's simulator)", d.site.VCenter.Address())
	say("Kubernetes:         v%s, a real control plane; 3 nodes that KWOK answers for", d.site.Cluster.Version())
	all := d.site.Resources(site.ResourceOptions{Namespace: namespace, Reference: d.reference()})
	_, resources, _ := strings.Cut(all, "---\n") // without the account, which vdoctl creates
	return errors.Join(
		os.WriteFile(d.path("site/site.yaml"), []byte(resources), 0o600),
		os.Symlink(filepath.Join(toolchain.Root(), "deploy"), d.path("site/deploy")),
	)
}

// value returns the value of a variable in the demo's files.
func (d *demo) value(name string) string {
	return map[string]string{
		"FLAGS":  strings.Join(d.upstream.Flags(), " "), // they lead vdo-bundle to the stand-in registries
		"BUNDLE": d.reference(), "SERVICES": d.mirror.Host + "/vdo/services:stable",
		"JUMPHOST": d.upstream.Registry.Host + "/" + jumpHost, "ADMINISTRATOR": vcenter.Administrator.Username,
		"KEY": d.key, "HOSTS": showHosts,
	}[name]
}

func (d *demo) reference() string { return d.mirror.Host + "/vdo/drivers:stable" }

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
		heading("%s", strings.Join(words, " "))
	case "say":
		say("%s", strings.Join(words, " "))
	case "connected$":
		_, err = d.connected.Run(ctx, words[0], words[1:]...)
	case "site$":
		_, err = d.isolated.Run(ctx, words[0], words[1:]...)
	case "admin$": // in the site, with the administrator's password
		admin := *d.isolated
		admin.Env = append(slices.Clip(admin.Env), "VDO_VCENTER_PASSWORD="+vcenter.Administrator.Password)
		_, err = admin.Run(ctx, words[0], words[1:]...)
	case "refused$": // in the site
		_, err = d.isolated.Run(ctx, words[0], words[1:]...)
		exit, ok := errors.AsType[*shell.Exit](err)
		if !ok || exit.Code <= 0 {
			return errors.Join(fmt.Errorf("%s was accepted", strings.Join(words, " ")), err)
		}
		say("(exit code %d)", exit.Code)
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
		say("%s, %s", words[0], humanize.Bytes(uint64(info.Size()))) //nolint:gosec // a size is not negative
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
	kubeconfig := strings.TrimPrefix(account, "vdo-") + ".kubeconfig"
	if err := d.site.WriteKubeconfigOf(ctx, namespace, account, d.path("site/"+kubeconfig)); err != nil {
		return err
	}
	args = append(args, "--kubeconfig", kubeconfig, "--metrics-bind-address", "0", "--health-probe-bind-address", "127.0.0.1:0")
	command(shell.CommandLine("vdo-operator", args) + " &")
	operator, err := d.isolated.Start(d.path(account+".log"), "vdo-operator", args...)
	if err == nil {
		d.operators = append(d.operators, operator)
	}
	return err
}

// explain shows the logs that help after a failure.
func (d *demo) explain() {
	if d.site == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	heading("What went wrong")
	_, _ = d.isolated.Run(ctx, "kubectl", "-n", namespace, "get", "driverbundles,vspherecloudconfigs,vdoconfigs", "-o", "yaml")
	if d.sip {
		_, _ = d.isolated.Run(ctx, "kubectl", "get", "sipclusters,baremetalhosts", "-A", "-o", "yaml")
	}
	if err := d.site.Drivers.Err(); err != nil {
		say("the drivers that stand in: %v", err)
	}
	for _, o := range d.operators {
		if log, err := os.ReadFile(o.Log); err == nil && len(log) > 0 {
			say("%s ends with:\n%s", filepath.Base(o.Log), log[max(0, len(log)-4<<10):])
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
