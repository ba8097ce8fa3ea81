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

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/nodeconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

// mirrorConfigOptions are the flags of `mirror-config`.
type mirrorConfigOptions struct {
	common
	runtime, nodeCA         string
	only, withLogin, asTags bool
}

const mirrorConfigHelp = `mirror-config writes the files that lead nodes from the upstream names of a bundle's
images to a mirror that push --layout paths has filled, or that serve serves. VDO's
own operator does not need them: it names images in the mirror by digest.

  containerd  HOST/hosts.toml below config_path (/etc/containerd/certs.d), read at every
              pull
  crio        a file for /etc/containers/registries.conf.d: systemctl reload crio
  k3s         /etc/rancher/k3s/registries.yaml (RKE2: /etc/rancher/rke2): restart the
              service node by node
  openshift   an ImageDigestMirrorSet; with --tags an ImageTagMirrorSet as well: applying
              that drains and reboots the nodes, one after the other

CRI-O and OpenShift take the longest entry that a name begins with alone: add the mirrors
of a whole host to these entries. On OpenShift all sets have to give one source the same
mirrorSourcePolicy. --with-login writes a login, for containerd and k3s, with mode 0600.`

func newMirrorConfigCommand(a *app) *cobra.Command {
	o := &mirrorConfigOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "mirror-config SRC REGISTRY/REPO --runtime RUNTIME",
		Short: "Write what nodes need to find images in the mirror",
		Long:  mirrorConfigHelp,
		Example: `  vdo-bundle mirror-config drivers.tar registry.site:5000/vdo/drivers --runtime containerd -o certs.d
  vdo-bundle mirror-config drivers.tar registry.site/vdo/drivers --runtime openshift | oc apply -f -`,
		Args: flags.Exactly("SRC", "REGISTRY/REPO"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0], args[1]) },
	}
	fl := cmd.Flags()
	fl.Var(&flags.Choice{To: &o.runtime, Of: nodeconfig.Runtimes()}, "runtime", "what the nodes run (`RUNTIME`): "+strings.Join(nodeconfig.Runtimes(), ", "))
	fl.StringVarP(&o.dest, "output", "o", "", "`FOLDER` to write the files into (default: standard output)")
	o.bindReplace(cmd, "files that are there already")
	fl.StringVar(&o.nodeCA, "node-ca", "", "`PATH` on the nodes of the mirror's certificate authority, where they do not trust it already")
	fl.BoolVar(&o.only, "mirror-only", false, "never ask upstream")
	fl.BoolVar(&o.withLogin, "with-login", false, "write the mirror's login into the files (containerd, k3s)")
	fl.BoolVar(&o.asTags, "tags", false, "write an ImageTagMirrorSet too: it reboots the nodes (openshift)")
	return with(cmd, o.registryFlags.bindSmall)
}

func (o *mirrorConfigOptions) run(cmd *cobra.Command, src, dest string) error {
	runtime := nodeconfig.Runtime(o.runtime)
	to, err := registryDestination("lead nodes to", dest, "")
	if err := fault.Join(o.check(cmd, runtime), err); err != nil {
		return err
	}
	return o.read(cmd.Context(), src, verify.Rules{}, func(b opened) error {
		_, lock, err := b.Whole(cmd.Context(), run.Options{})
		if err != nil {
			return err
		}
		in := nodeconfig.Input{
			Mirror: to.reference, Only: o.only, CA: o.nodeCA, Tags: o.asTags,
			PlainHTTP: slices.Contains(o.plainHTTP, to.reference.Host()),
		}
		for _, i := range lock.Images {
			in.Images = append(in.Images, i.Reference)
		}
		if o.withLogin {
			if in.Login, err = o.mirrorLogin(cmd.Context(), to.reference); err != nil {
				return err
			}
		}
		files, err := nodeconfig.Write(runtime, in)
		if err != nil {
			return err
		}
		return o.write(files)
	})
}

// check refuses flags that have no meaning for a runtime.
func (o *mirrorConfigOptions) check(cmd *cobra.Command, runtime nodeconfig.Runtime) error {
	var errs []error
	bad := func(flag, value, why, hint string) {
		errs = append(errs, flags.Bad(flag, value, errors.New(why), hint))
	}
	if runtime == "" {
		return flags.Missing(cmd, "--runtime: it is one of "+strings.Join(nodeconfig.Runtimes(), ", "))
	}
	if o.withLogin && runtime != nodeconfig.Containerd && runtime != nodeconfig.K3s {
		bad("--with-login", "true", o.runtime+" keeps logins elsewhere", "CRI-O: global_auth_file; OpenShift: the cluster's pull secret")
	}
	if o.withLogin && o.dest == "" {
		bad("--with-login", "true", "a login is not written to standard output", "name a folder with -o")
	}
	if o.asTags && runtime != nodeconfig.OpenShift {
		bad("--tags", "true", o.runtime+" has no use for it", "the other runtimes' files lead names with a tag to the mirror already")
	}
	if o.nodeCA != "" && runtime == nodeconfig.OpenShift {
		bad("--node-ca", o.nodeCA, "openshift keeps authorities elsewhere", "name it in additionalTrustedCA of image.config.openshift.io/cluster")
	}
	if o.nodeCA != "" && !strings.HasPrefix(o.nodeCA, "/") {
		bad("--node-ca", o.nodeCA, "not an absolute path", "name the file as it lies on the nodes, such as /etc/ssl/site-ca.crt")
	}
	return fault.Join(errs...)
}

// mirrorLogin finds a user and password for the mirror, as login keeps them.
func (o *mirrorConfigOptions) mirrorLogin(ctx context.Context, mirror image.Reference) (nodeconfig.Login, error) {
	find, err := o.credentials()
	if err != nil {
		return nodeconfig.Login{}, err
	}
	c, err := find(ctx, mirror.Host(), mirror.Path())
	if err != nil {
		return nodeconfig.Login{}, err
	}
	if c.Username == "" || c.Password == "" {
		return nodeconfig.Login{}, fault.Errorf(fault.Unauthorized, "find login of", mirror.Host(),
			"run `vdo-bundle login` for it first, with an account that may only pull", "no user with a password")
	}
	return nodeconfig.Login{Username: c.Username, Password: c.Password}, nil
}

// write writes files into a folder and names them, or prints them.
func (o *mirrorConfigOptions) write(files []nodeconfig.File) error {
	var errs []error
	for n, f := range files {
		switch {
		case o.dest != "":
			errs = append(errs, o.vacant(filepath.Join(o.dest, filepath.FromSlash(f.Name))))
		case len(files) > 1:
			_, err := fmt.Fprintf(o.out, "%s# --- %s\n%s", map[bool]string{true: "\n"}[n > 0], f.Name, f.Data)
			errs = append(errs, err)
		default:
			_, err := o.out.Write(f.Data)
			errs = append(errs, err)
		}
	}
	if err := fault.Join(errs...); err != nil || o.dest == "" {
		return err
	}
	for _, f := range files {
		name, mode := filepath.FromSlash(f.Name), os.FileMode(0o644)
		if f.Secret {
			mode = 0o600
		}
		if err := userfile.WriteBelow(o.dest, name, f.Data, mode); err != nil {
			return err
		}
		if err := o.print(filepath.Join(o.dest, name)); err != nil {
			return err
		}
	}
	return nil
}
