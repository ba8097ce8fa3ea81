package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/install"
)

// installOptions are the flags of `install-manifests`.
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
		Example: `  vdo-bundle install-manifests registry.site/vdo/drivers:1 --key release.pub | kubectl apply -f -
  vdo-bundle install-manifests drivers.tar --repository registry.site/vdo/drivers -o operator.yaml
  vdo-bundle install-manifests registry.site/vdo/drivers:1 --key release.pub --sip | kubectl apply -f -`,
		Args: flags.Exactly("SRC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, f := range []string{"antrea", "classes", "mirror-set", "rbac-policy", "host-network"} {
				if o.to.SIP && cmd.Flags().Changed(f) {
					return flags.Usage(cmd, "--sip and --"+f+" cannot be combined: that is of the operator for drivers")
				}
			}
			return o.run(cmd.Context(), args[0])
		},
	}
	o.bindOutput(cmd, "`FILE` to write the manifests to, - for standard output")
	cmd.Flags().StringVar(&o.to.Repository, "repository", "", "`REGISTRY/REPO` in the site that the bundle is pushed to (default SRC's)")
	cmd.Flags().BoolVar(&o.to.Antrea, "antrea", false, "with the rights that the operator needs to install Antrea")
	cmd.Flags().BoolVar(&o.to.Classes, "classes", false, "with the rights that the operator needs to make StorageClasses and VolumeSnapshotClasses")
	cmd.Flags().BoolVar(&o.to.MirrorSet, "mirror-set", false, "with the rights that the operator needs to lead OpenShift's nodes to the mirror")
	cmd.Flags().BoolVar(&o.to.Policy, "rbac-policy", false,
		"with the admission policy that limits what rights the operator can give (Kubernetes 1.30 and later)")
	cmd.Flags().BoolVar(&o.to.HostNetwork, "host-network", false, "on the nodes' network, for a cluster whose network plug-in the operator installs")
	cmd.Flags().BoolVar(&o.to.SIP, "sip", false, "of the operator for tenant clusters (SIPCluster), instead")
	return with(cmd, o.trustFlags.bind, o.registryFlags.bind, o.bindProgress)
}

func (o *installOptions) run(ctx context.Context, src string) error {
	rules, err := o.rules()
	if err != nil {
		return err
	}
	from, err := parsePlace(src)
	if err != nil {
		return err
	}
	if o.to.Repository, err = mirrorRepository(o.to.Repository, from); err != nil {
		return err
	}
	return o.read(ctx, src, rules, func(b opened) error {
		held, err := b.Read(ctx)
		if err != nil {
			return err
		}
		of, err := install.Of(held.Root, held.Contents, o.to)
		if err != nil {
			return err
		}
		whose := ""
		if o.to.SIP {
			whose = ", for SIPClusters"
		}
		return o.deliver(o.dest, fmt.Appendf(nil, "# vdo-operator %s of bundle %s%s\n---\n%s", of.Version, of.Root, whose, of.YAML), "")
	})
}

// mirrorRepository returns HOST/PATH of the mirror, from the flag or from SRC.
func mirrorRepository(flag string, src place) (string, error) {
	if flag == "" {
		if src.medium != inRegistry {
			return "", flags.Bad("--repository", flag, errors.New("SRC is not in a registry, so the mirror has to be named"), "write REGISTRY/REPO as the bundle is pushed to")
		}
		return src.reference.Repository(), nil
	}
	to, err := parsePlace(flag)
	if err == nil && to.medium != inRegistry {
		err = errors.New("not a repository of a registry")
	}
	if err != nil {
		return "", flags.Bad("--repository", flag, err, "write REGISTRY/REPO as the bundle is pushed to")
	}
	return to.reference.Repository(), nil
}
