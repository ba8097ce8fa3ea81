package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/export"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/archive"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

// exportOptions are the flags of `export`.
type exportOptions struct {
	common
	repository, names string
	restart           bool
}

const exportHelp = `export writes the images of a bundle into an archive for nodes that reach no registry.
Each image has the name that the operator gives it in pods. The operator itself still
reads the bundle from the site's registry.

  containerd  ctr -n k8s.io images import FILE.tar
  k3s         copy FILE.tar into /var/lib/rancher/k3s/agent/images
  RKE2        copy FILE.tar into /var/lib/rancher/rke2/agent/images

The names are those of the DriverBundle's spec.imageNames: repository is HOST/PATH@DIGEST
of the mirror, paths is HOST/PATH/registry.k8s.io/csi-vsphere/driver@DIGEST, and upstream is
registry.k8s.io/csi-vsphere/driver@DIGEST. Where a kubelet has removed images from a full
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
		Args: flags.Exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&o.dest, "output", "o", "", "`FILE.tar` to write the images into")
	fl.StringVar(&o.repository, "repository", "", "`REGISTRY/REPO` in the site that the operator reads the bundle from (default SRC's)")
	names := []string{string(export.Repository), string(export.Paths), string(export.Upstream)}
	fl.Var(&flags.Choice{To: &o.names, Of: names}, "image-names",
		"how pods name images, as spec.imageNames of the DriverBundle says: repository, paths or upstream")
	o.bindReplace(cmd, "a file that is there already, once the new one is complete")
	fl.BoolVar(&o.restart, "restart", false, "drop what an interrupted pull, or another export, has left at FILE.tar")
	return with(cmd, o.trustFlags.bind, o.registryFlags.bind, o.bindFormat, o.bindProgress)
}

func (o *exportOptions) run(cmd *cobra.Command, src string) error {
	if o.dest == "" {
		return flags.Missing(cmd, "-o FILE.tar")
	}
	rules, err := o.rules()
	from, srcErr := parsePlace(src)
	in, destErr := o.input(from)
	if err := fault.Join(err, srcErr, destErr, userfile.Vacant(o.dest, true, src)); err != nil {
		return err
	}
	return o.read(cmd.Context(), src, rules, func(b opened) error {
		in.Bundle = b.Bundle
		in.Target, err = archive.CreateFile(o.dest, archive.Options{Replace: o.replace, Restart: o.restart})
		if err != nil {
			return err
		}
		done, err := export.Images(cmd.Context(), in, o.options())
		if err := fault.Join(err, in.Target.Close()); err != nil {
			return err
		}
		result := map[string]any{"file": o.dest, "images": done.Images, "bytes": done.Bytes}
		return o.show(result, func() error {
			o.say("%s, %s", command.Plural(done.Images, "image", "images"), size.Format(done.Bytes))
			return o.print(o.dest)
		})
	})
}

// input reads the flags that say where images are written to and how they are named.
func (o *exportOptions) input(from place) (export.Input, error) {
	in := export.Input{Names: export.Names(o.names)}
	_, err := filePlace(o.dest)
	if in.Names == export.Upstream {
		if o.repository != "" {
			err = fault.Join(err, flags.Bad("--repository", o.repository,
				errors.New("upstream names have no mirror in them"), "leave it out"))
		}
		return in, err
	}
	repository, repositoryErr := mirrorRepository(o.repository, from)
	if repositoryErr != nil {
		return in, fault.Join(err, repositoryErr)
	}
	to, parseErr := parsePlace(repository)
	in.Mirror = to.reference
	return in, fault.Join(err, parseErr)
}
