package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/outdated"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// outdatedOptions are the flags of `outdated`.
type outdatedOptions struct {
	common
	matrixFlags
	sourceFlags
}

func newOutdatedCommand(a *app) *cobra.Command {
	o := &outdatedOptions{common: common{app: a}}
	return with(&cobra.Command{
		Use:   "outdated SRC",
		Short: "Show which newer releases a bundle lacks",
		Long: `outdated shows what is newer than the drivers and services of a bundle. pull can take the
releases that the matrix lists. Others, which it does not list yet, upstream has published in
the repository of the driver's image. A minor's newest release counts; of minors that the
bundle does not have, those that are newer than all that it has. It proves nothing, and
it ends with exit code 0 whatever it finds.`,
		Example: `  vdo-bundle outdated registry.site/vdo/drivers:1
  vdo-bundle outdated drivers.tar --matrix matrix.yaml --format json`,
		Args: flags.Exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}, o.matrixFlags.bind, o.sourceFlags.bind, o.registryFlags.bindSmall, o.bindFormat, o.bindProgress)
}

func (o *outdatedOptions) run(ctx context.Context, src string) error {
	m, err := o.openMatrix(o.app)
	if err != nil {
		return err
	}
	return o.read(ctx, src, verify.Rules{}, func(b opened) error {
		upstream, err := o.upstream(b.client, &o.registryFlags)
		if err != nil {
			return err
		}
		found, err := outdated.Find(ctx, outdated.Input{
			Bundle: b.Bundle, Matrix: m.Document,
			Tags: func(ctx context.Context, i image.Reference) ([]string, error) {
				return b.client.Repository(upstream(i).Can().Repository).Tags(ctx)
			},
		}, o.options())
		if found == nil {
			return err
		}
		return fault.Join(err, o.show(found, func() error {
			t := command.NewTable("DRIVER", "BUNDLE", "IN THE MATRIX", "PUBLISHED", "IMAGE")
			for _, d := range found {
				t.Row(d.Driver, versions(d.Has), versions(d.Listed), versions(d.Published), d.Image)
			}
			return t.Write(o.out)
		}))
	})
}

func versions(of []matrix.Version) string {
	names := make([]string, len(of))
	for n, v := range of {
		names[n] = v.String()
	}
	return strings.Join(names, " ")
}
