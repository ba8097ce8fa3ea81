package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/install"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/export"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/archive"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/nodeconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
)

type mirrorConfigOptions struct {
	common
	runtime, nodeCA string
	only, withLogin bool
}

const mirrorConfigHelp = `mirror-config writes the files by which nodes find images with upstream names in a mirror,
filled by push --layout paths or served by serve. VDO's own operator does not need them: it
names images in the mirror by digest.

  containerd  HOST/hosts.toml below config_path (/etc/containerd/certs.d), read at every
              pull
  crio        a file for /etc/containers/registries.conf.d: systemctl reload crio
  k3s         /etc/rancher/k3s/registries.yaml (RKE2: /etc/rancher/rke2): restart the
              service node by node
  openshift   an ImageDigestMirrorSet, for names with a digest

CRI-O and OpenShift take the longest entry that a name begins with alone: add the mirrors
of a whole host to these entries. On OpenShift all sets have to give one source the same
mirrorSourcePolicy.

--with-login writes a login, for containerd and k3s, with mode 0600. Before 2.1, containerd
cannot use it at registries that take tokens only, such as Quay: put the login into its
config.toml, as registry.configs."HOST".auth.`

func newMirrorConfigCommand(a *app) *cobra.Command {
	o := &mirrorConfigOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "mirror-config SRC REGISTRY/REPO --runtime RUNTIME",
		Short: "Write what nodes need to find images in the mirror",
		Long:  mirrorConfigHelp,
		Example: `  vdo-bundle mirror-config drivers.tar registry.site:5000/vdo/drivers --runtime containerd -o certs.d
  vdo-bundle mirror-config drivers.tar registry.site/vdo/drivers --runtime openshift | oc apply -f -`,
		Args: flags.Exactly("SRC", "REGISTRY/REPO",
			"--runtime: it is one of "+strings.Join(nodeconfig.Runtimes(), ", ")),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0], args[1]) },
	}
	fl := cmd.Flags()
	fl.Var(&flags.Choice{To: &o.runtime, Of: nodeconfig.Runtimes()}, "runtime", "what the nodes run (`RUNTIME`): "+strings.Join(nodeconfig.Runtimes(), ", "))
	fl.StringVarP(&o.dest, "output", "o", "", "`FOLDER` to write the files into (default: standard output)")
	o.bindReplace(cmd, "files that are there already")
	fl.StringVar(&o.nodeCA, "node-ca", "", "`PATH` on the nodes of the mirror's CA certificate, where they do not trust it already")
	fl.BoolVar(&o.only, "mirror-only", false, "never ask upstream")
	fl.BoolVar(&o.withLogin, "with-login", false, "write the mirror's login into the files (containerd, k3s)")
	return with(cmd, o.registryFlags.bindSmall)
}

func (o *mirrorConfigOptions) run(cmd *cobra.Command, src, dest string) error {
	runtime := nodeconfig.Runtime(o.runtime)
	to, err := registryLocation("lead nodes to", dest)
	if err := fault.Join(o.check(runtime), err); err != nil {
		return err
	}
	return o.read(cmd.Context(), src, verify.Rules{}, func(b opened) error {
		_, lock, err := b.Whole(cmd.Context(), run.Options{})
		if err != nil {
			return err
		}
		host := to.reference.Host()
		in := nodeconfig.Input{
			Mirror: to.reference, Only: o.only, CA: o.nodeCA,
			PlainHTTP: o.remote.Hosts[host].PlainHTTP || slices.Contains(o.remote.PlainHTTP, host),
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

// check refuses flags that do not apply to a runtime.
func (o *mirrorConfigOptions) check(runtime nodeconfig.Runtime) error {
	var errs []error
	bad := func(flag, value, why, hint string) {
		errs = append(errs, flags.Bad(flag, value, errors.New(why), hint))
	}
	if o.withLogin && runtime != nodeconfig.Containerd && runtime != nodeconfig.K3s {
		bad("--with-login", "true", o.runtime+" keeps logins elsewhere", "CRI-O: global_auth_file; OpenShift: the cluster's pull secret")
	}
	if o.withLogin && o.dest == "" {
		bad("--with-login", "true", "a login is not written to standard output", "name a folder with -o")
	}
	if o.nodeCA != "" && !strings.HasPrefix(o.nodeCA, "/") {
		bad("--node-ca", o.nodeCA, "not an absolute path", "name the file as it lies on the nodes, such as /etc/ssl/site-ca.crt")
	}
	return fault.Join(errs...)
}

func (o *mirrorConfigOptions) mirrorLogin(ctx context.Context, mirror image.Reference) (nodeconfig.Login, error) {
	c, err := o.remote.Credentials(ctx, mirror.Host(), mirror.Path())
	if err != nil {
		return nodeconfig.Login{}, err
	}
	if c.Username == "" || c.Password == "" {
		return nodeconfig.Login{}, fault.Errorf(fault.Unauthorized, "find login of", mirror.Host(),
			"run `vdo-bundle login` for it first, with an account that may only pull", "no user with a password")
	}
	return nodeconfig.Login{Username: c.Username, Password: c.Password}, nil
}

// write writes files into a directory and prints their names, or prints the files.
func (o *mirrorConfigOptions) write(files []nodeconfig.File) error {
	var errs []error
	for n, f := range files {
		switch {
		case o.dest != "":
			errs = append(errs, userfile.Vacant(filepath.Join(o.dest, filepath.FromSlash(f.Name)), o.archive.Replace))
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

type exportOptions struct {
	common
	repository, names string
}

const exportHelp = `export writes the images of a bundle into an archive for nodes that reach no registry.
Each image has the name that the operator gives it in pods. The operator itself still
reads the bundle from the site's registry.

  containerd  ctr -n k8s.io images import FILE.tar
  k3s         copy FILE.tar into /var/lib/rancher/k3s/agent/images
  RKE2        copy FILE.tar into /var/lib/rancher/rke2/agent/images

The names are those of the DriverBundle's spec.imageNames: repository is HOST/PATH@DIGEST
of the mirror, paths is HOST/PATH/registry.k8s.io/csi-vsphere/driver@DIGEST, and upstream is
registry.k8s.io/csi-vsphere/driver@DIGEST. If a kubelet has removed images from a full
disk, import them again; k3s and RKE2 do so when they start.`

func newExportCommand(a *app) *cobra.Command {
	o := &exportOptions{common: common{app: a}, names: string(export.Repository)}
	cmd := &cobra.Command{
		Use:   "export SRC -o FILE.tar",
		Short: "Write the images of a bundle for nodes without a registry",
		Long:  exportHelp,
		Example: `  vdo-bundle export registry.site/vdo/drivers:1 -o images.tar
  vdo-bundle export drivers.tar --repository registry.site/vdo/drivers -o images.tar
  vdo-bundle export drivers.tar --image-names upstream -o images.tar --key release.pub`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&o.dest, "output", "o", "", "`FILE.tar` to write the images into")
	fl.StringVar(&o.repository, "repository", "", "`REGISTRY/REPO` in the site that the operator reads the bundle from (default SRC's)")
	names := []string{string(export.Repository), string(export.Paths), string(export.Upstream)}
	fl.Var(&flags.Choice{To: &o.names, Of: names}, "image-names",
		"how pods name images, as spec.imageNames of the DriverBundle says: repository, paths or upstream")
	return with(cmd, o.bindTarget, o.trustFlags.bind, o.registryFlags.bind, o.bindFormat, o.bindProgress)
}

func (o *exportOptions) run(cmd *cobra.Command, src string) error {
	rules, err := o.rules()
	from, srcErr := parseLocation(src)
	_, destErr := fileLocation(o.dest)
	in := export.Input{Names: export.Names(o.names)}
	if in.Names != export.Upstream {
		var mirrorErr error
		in.Mirror, mirrorErr = mirrorOf(o.repository, from)
		destErr = fault.Join(destErr, mirrorErr)
	}
	if err := fault.Join(err, srcErr, destErr, apart(location{store: inFile, path: o.dest}, from)); err != nil {
		return err
	}
	return o.read(cmd.Context(), src, rules, func(b opened) error {
		o.sayUnchecked(rules)
		in.Bundle = b.Bundle
		in.Target, err = archive.CreateFile(o.dest, o.archive)
		if err != nil {
			return err
		}
		done, err := export.Images(cmd.Context(), in, o.options())
		if err := fault.Join(err, in.Target.Close()); err != nil {
			return err
		}
		result := map[string]any{"file": o.dest, "images": done.Images, "bytes": done.Bytes}
		return o.show(result, func(p *printer) {
			o.say("%s, %s", command.Plural(done.Images, "image", "images"), size.Format(done.Bytes))
			p.print(o.dest)
		})
	})
}

type installOptions struct {
	common
	to install.Options
}

func newInstallManifestsCommand(a *app) *cobra.Command {
	o := &installOptions{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "install-manifests SRC",
		Short: "Print the manifests that install the operator of a bundle",
		Long: `install-manifests prints, as YAML, what kubectl apply needs to install the operator
that a bundle holds (see lock --operator). The image is written as REGISTRY/REPO@DIGEST
of the mirror: SRC's where SRC is a registry, else that of --repository. With --sip it
prints what installs the operator for tenant clusters, of lock --services sip. With --key
or --policy the whole bundle is verified first, as verify does.`,
		Example: `  kubectl create namespace vmware-system-csi
  vdo-bundle install-manifests registry.site/vdo/drivers:1 --key release.pub | kubectl apply -f -
  vdo-bundle install-manifests drivers.tar --repository registry.site/vdo/drivers -o operator.yaml
  vdo-bundle install-manifests registry.site/vdo/drivers:1 --key release.pub --sip | kubectl apply -f -`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	o.bindOutput(cmd, "`FILE` to write the manifests to, - for standard output")
	cmd.Flags().StringVar(&o.to.Repository, "repository", "", "`REGISTRY/REPO` in the site that the bundle is pushed to (default SRC's)")
	cmd.Flags().BoolVar(&o.to.Antrea, "antrea", false, "with the permissions that the operator needs to install Antrea")
	cmd.Flags().BoolVar(&o.to.Classes, "classes", false, "with the permissions that the operator needs to make StorageClasses and VolumeSnapshotClasses")
	cmd.Flags().BoolVar(&o.to.MirrorSet, "mirror-set", false, "with the permissions that the operator needs to lead OpenShift's nodes to the mirror")
	cmd.Flags().BoolVar(&o.to.Policy, "rbac-policy", false,
		"with the admission policy that limits what permissions the operator can give (Kubernetes 1.30 and later)")
	cmd.Flags().BoolVar(&o.to.HostNetwork, "host-network", false, "on the nodes' network, for a cluster whose network plug-in the operator installs")
	cmd.Flags().BoolVar(&o.to.SIP, "sip", false, "of the operator for tenant clusters (SIPCluster), instead")
	return with(cmd, o.trustFlags.bind, o.registryFlags.bind, o.bindProgress)
}

func (o *installOptions) run(ctx context.Context, src string) error {
	rules, err := o.rules()
	from, srcErr := parseLocation(src)
	mirror, mirrorErr := mirrorOf(o.to.Repository, from)
	if err := fault.Join(err, cmp.Or(srcErr, mirrorErr)); err != nil {
		return err
	}
	o.to.Repository = mirror.Repository()
	return o.read(ctx, src, rules, func(b opened) error {
		o.sayUnchecked(rules)
		held, err := b.Read(ctx)
		if err != nil {
			return err
		}
		of, err := install.Of(held.Root, held.Contents, o.to)
		if err != nil {
			return err
		}
		text := fmt.Appendf(nil, "# vdo-operator %s of bundle %s\n---\n%s", of.Version, of.Root, of.YAML)
		return o.deliver(o.dest, text, "")
	})
}

// mirrorOf returns the repository of the mirror, from the flag or from SRC.
func mirrorOf(flag string, src location) (image.Reference, error) {
	switch {
	case flag != "":
		to, err := registryLocation("read flag --repository", flag)
		return to.reference, err
	case src.store != inRegistry:
		why := errors.New("SRC is not in a registry, so the mirror has to be named")
		return src.reference, flags.Bad("--repository", flag, why, "write REGISTRY/REPO as the bundle is pushed to")
	}
	return src.reference, nil
}
