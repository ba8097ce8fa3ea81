package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/install"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/lock"
)

// operatorInput reads --operator; nil where it was not given.
func (f *flags) operatorInput() (*lock.Operator, error) {
	if f.operator == "" {
		return nil, nil
	}
	o, err := lock.NewOperator(f.operator)
	if err != nil {
		return nil, badFlag("--operator", f.operator, err, "write the image with the operator's version as tag: registry.example/vdo-operator:v1.2.3")
	}
	return o, nil
}

func (a app) installManifestsCommand() *cobra.Command {
	var to install.Options
	cmd := &cobra.Command{
		Use:   "install-manifests SRC",
		Short: "Print the manifests that install the operator of a bundle",
		Long: `install-manifests prints, as YAML, what kubectl apply needs to install the operator
that a bundle holds (see pull --operator): kinds, rights, network policy, Deployment.
The image is written as REGISTRY/REPO@DIGEST of the mirror: SRC's where SRC is a
registry, else that of --repository.

With --key or --policy the whole bundle is verified first, as verify does, and
nothing is printed where anything is wrong.`,
		Example: `  vdo-bundle install-manifests registry.site/vdo/drivers:1 --key release.pub | kubectl apply -f -
  vdo-bundle install-manifests drivers.tar --repository registry.site/vdo/drivers > operator.yaml`,
		Args: exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.installManifests(cmd.Context(), args[0], to)
		},
	}
	cmd.Flags().StringVar(&to.Repository, "repository", "", "REGISTRY/REPO in the site that the bundle is pushed to (default SRC's)")
	cmd.Flags().BoolVar(&to.Antrea, "antrea", false, "with the rights that the operator needs to install Antrea")
	cmd.Flags().BoolVar(&to.HostNetwork, "host-network", false, "on the nodes' network, for a cluster whose network plug-in the operator installs")
	a.flags.trustFlags(cmd)
	a.flags.verifyMatrixFlags(cmd)
	a.flags.registryFlags(cmd)
	a.flags.quietFlag(cmd)
	return cmd
}

func (a *app) installManifests(ctx context.Context, src string, to install.Options) error {
	rules, err := a.verifyRules()
	if err != nil {
		return err
	}
	from, err := parsePlace(src)
	if err != nil {
		return err
	}
	if to.Repository, err = mirrorRepository(to.Repository, from); err != nil {
		return err
	}
	progress := a.reporter()
	defer progress.end()
	b, _, _, err := a.opened(ctx, src, rules, progress)
	if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // only read
	of, err := install.Read(ctx, b.Bundle, to)
	progress.end()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "# vdo-operator %s of bundle %s\n---\n%s", of.Version, of.Root, of.YAML)
	return err
}

// mirrorRepository returns HOST/PATH of the mirror, from the flag or from SRC.
func mirrorRepository(flag string, src place) (string, error) {
	if flag == "" {
		if src.medium != inRegistry {
			return "", badFlag("--repository", flag, errors.New("SRC is no registry, so the mirror has to be named"), "write REGISTRY/REPO as the bundle is pushed to")
		}
		return src.reference.Repository(), nil
	}
	to, err := parsePlace(flag)
	if err == nil && to.medium != inRegistry {
		err = errors.New("it is no repository of a registry")
	}
	if err != nil {
		return "", badFlag("--repository", flag, err, "write REGISTRY/REPO as the bundle is pushed to")
	}
	return to.reference.Repository(), nil
}
