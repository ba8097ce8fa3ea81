package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/nodeconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/push"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

// Layouts of a push.
const (
	layoutSingle = "single"
	layoutPaths  = "paths"
)

func (f *flags) layoutFlag(cmd *cobra.Command) {
	f.layout = layoutSingle
	cmd.Flags().Var(&choice{to: &f.layout, of: []string{layoutSingle, layoutPaths}}, "layout",
		"single: everything in one repository; paths: beside it each image below REPO under its upstream name, for nodes with a mirror configuration")
}

// pushPaths puts the images under their upstream names, where that was asked for.
func (a *app) pushPaths(ctx context.Context, b *pinned.Bundle, to place, client *registry.Client, p run.Progress) error {
	if a.flags.layout != layoutPaths {
		return nil
	}
	if a.flags.dryRun {
		p.Say("the images beside the bundle are not in the plan: the registry takes their blobs over from it, or they are sent again where it cannot")
		return nil
	}
	_, err := push.Images(ctx, push.ImagesInput{
		Bundle: b, Reference: to.reference, Registry: direct(client),
		Open: func(ref image.Reference) medium.Target { return client.Repository(ref) },
	}, a.options(p))
	return err
}

// mirrorConfigFlags are those of `mirror-config` alone.
type mirrorConfigFlags struct {
	format, dir, nodeCA     string
	only, withLogin, asTags bool
}

func (a app) mirrorConfigCommand() *cobra.Command {
	var f mirrorConfigFlags
	cmd := &cobra.Command{
		Use:   "mirror-config SRC REGISTRY/REPO --format FORMAT",
		Short: "Write what nodes need to find images in the mirror",
		Long: `mirror-config writes the files that lead nodes from the upstream names of a bundle's
images to a mirror that push --layout paths has filled, or that serve serves. VDO's
own operator does not need them: it names images in the mirror by digest. Nothing is
asked of the mirror, and nothing is changed on any node.

  containerd  HOST/hosts.toml below config_path (/etc/containerd/certs.d). Read at every
              pull: nothing restarts, once config_path is set.
  crio        a file for /etc/containers/registries.conf.d. Taken up by
              systemctl reload crio; no pod is touched.
  k3s         /etc/rancher/k3s/registries.yaml (RKE2: /etc/rancher/rke2). Read when the
              service starts: restart it node by node; pods go on running.
  openshift   an ImageDigestMirrorSet. The Machine Config Operator writes it onto every
              node and reloads CRI-O. With --tags an ImageTagMirrorSet as well: applying
              that drains and reboots the nodes, one after the other.

A login is only written where --with-login asks for it, into files with mode 0600, and
only for containerd and k3s: CRI-O keeps logins in its global_auth_file, OpenShift in
the cluster's pull secret.`,
		Example: `  vdo-bundle mirror-config drivers.tar registry.site:5000/vdo/drivers --format containerd -o certs.d
  vdo-bundle mirror-config drivers.tar registry.site/vdo/drivers --format openshift | oc apply -f -`,
		Args: exactly("SRC", "REGISTRY/REPO"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.mirrorConfig(cmd, args[0], args[1], f) },
	}
	fl := cmd.Flags()
	fl.Var(&choice{to: &f.format, of: nodeconfig.Formats()}, "format", "what the nodes run: "+strings.Join(nodeconfig.Formats(), ", "))
	fl.StringVarP(&f.dir, "output", "o", "", "folder to write the files into (default: standard output)")
	fl.StringVar(&f.nodeCA, "node-ca", "", "path on the nodes of the mirror's certificate authority, where they do not trust it already")
	fl.BoolVar(&f.only, "mirror-only", false, "never ask upstream")
	fl.BoolVar(&f.withLogin, "with-login", false, "write the mirror's login, as docker and podman keep it, into the files (containerd, k3s)")
	fl.BoolVar(&f.asTags, "tags", false, "write an ImageTagMirrorSet too: it reboots the nodes (openshift)")
	a.flags.registryFlags(cmd)
	return cmd
}

func (a *app) mirrorConfig(cmd *cobra.Command, src, dest string, f mirrorConfigFlags) error {
	format := nodeconfig.Format(f.format)
	to, err := registryDestination("lead nodes to", dest, "")
	if err := fault.Join(f.check(cmd, format), err); err != nil {
		return err
	}
	b, _, _, err := a.opened(cmd.Context(), src, verify.Rules{}, nil)
	if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // only read
	_, lock, err := b.Whole(cmd.Context(), run.Options{})
	if err != nil {
		return err
	}
	in := nodeconfig.Input{
		Mirror: to.reference, Images: references(lock), Only: f.only, CA: f.nodeCA, Tags: f.asTags,
		PlainHTTP: slices.Contains(a.flags.plainHTTP, to.reference.Host()),
	}
	if f.withLogin {
		if in.Login, err = mirrorLogin(cmd.Context(), to.reference); err != nil {
			return err
		}
	}
	files, err := nodeconfig.Write(format, in)
	if err != nil {
		return err
	}
	return a.writeConfig(f.dir, files)
}

func references(lock *bundle.Lock) []image.Reference {
	out := make([]image.Reference, len(lock.Images))
	for n, i := range lock.Images {
		out[n] = i.Reference
	}
	return out
}

// check refuses flags that have no meaning for a format.
func (f mirrorConfigFlags) check(cmd *cobra.Command, format nodeconfig.Format) error {
	var errs []error
	bad := func(flag, value, why, hint string) { errs = append(errs, badFlag(flag, value, errors.New(why), hint)) }
	if format == "" {
		return usage(cmd, "there is no --format: it is one of "+strings.Join(nodeconfig.Formats(), ", "))
	}
	if f.withLogin && format != nodeconfig.Containerd && format != nodeconfig.K3s {
		bad("--with-login", "true", f.format+" keeps logins elsewhere", "CRI-O: global_auth_file; OpenShift: the cluster's pull secret")
	}
	if f.withLogin && f.dir == "" {
		bad("--with-login", "true", "a login is not written to standard output", "name a folder with -o")
	}
	if f.asTags && format != nodeconfig.OpenShift {
		bad("--tags", "true", f.format+" has no use for it", "the other formats lead names with a tag to the mirror already")
	}
	if f.nodeCA != "" && !strings.HasPrefix(f.nodeCA, "/") {
		bad("--node-ca", f.nodeCA, "it is no absolute path", "name the file as it lies on the nodes, such as /etc/ssl/site-ca.crt")
	}
	return fault.Join(errs...)
}

// mirrorLogin finds a user and password for the mirror where docker and podman keep them.
func mirrorLogin(ctx context.Context, mirror image.Reference) (nodeconfig.Login, error) {
	c, err := remote.DefaultCredentials(ctx, mirror.Host(), mirror.Path())
	if err != nil {
		return nodeconfig.Login{}, err
	}
	if c.Username == "" || c.Password == "" {
		return nodeconfig.Login{}, &fault.Error{
			Reason: fault.Unauthorized, Op: "find login of", Subject: mirror.Host(), Err: errors.New("there is no user with a password"),
			Hint: "run `docker login` or `podman login` for it first, with an account that may only pull",
		}
	}
	return nodeconfig.Login{Username: c.Username, Password: c.Password}, nil
}

// writeConfig writes files into a folder and names them, or prints them.
func (a *app) writeConfig(dir string, files []nodeconfig.File) error {
	for n, f := range files {
		if dir == "" {
			if len(files) > 1 {
				_, _ = fmt.Fprintf(a.out, "%s# --- %s\n", map[bool]string{true: "\n"}[n > 0], f.Name)
			}
			if _, err := a.out.Write(f.Data); err != nil {
				return err
			}
			continue
		}
		if err := a.writeConfigFile(dir, filepath.FromSlash(f.Name), f); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) writeConfigFile(dir, name string, f nodeconfig.File) error {
	mode := os.FileMode(0o644)
	if f.Secret {
		mode = 0o600
	}
	if err := userfile.WriteBelow(dir, name, f.Data, mode); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.out, filepath.Join(dir, name))
	return err
}
