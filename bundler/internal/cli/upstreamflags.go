package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/trustflags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/pull"
)

// upstreamFlags say what is asked of upstream's own signatures.
type upstreamFlags struct {
	verifyUpstream, carry string
}

func (f *upstreamFlags) bind(cmd *cobra.Command) {
	f.carry = string(upstream.CarryNone)
	flags.Group(cmd, flags.Sources, func(fl *pflag.FlagSet) {
		fl.StringVar(&f.verifyUpstream, "verify-upstream", "", "verify the images' own signatures first, as this policy `FILE` says")
		fl.Var(&flags.Choice{To: &f.carry, Of: []string{string(upstream.CarryNone), string(upstream.CarryImages), string(upstream.CarryAll)}},
			"upstream-signatures", "take upstream's signatures, attestations and SBOMs along, `OF` which images: none, images, or all, which is of all their platforms' manifests too")
	})
}

// upstreamPolicy reads the policy of --verify-upstream; nil where it is not given.
func (f *upstreamFlags) upstreamPolicy() (*upstream.Policy, error) {
	if f.verifyUpstream == "" {
		return nil, nil
	}
	data, err := userfile.Read("--verify-upstream", f.verifyUpstream, maxPolicyFile)
	if err != nil {
		return nil, err
	}
	return upstream.ParsePolicy(f.verifyUpstream, data, func(path string) (*trust.Policy, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(f.verifyUpstream), path)
		}
		return trustflags.ReadPolicy(userfile.Read, "--verify-upstream", path)
	})
}

// sayUpstream tells what was found of upstream's signatures.
func (f *upstreamFlags) sayUpstream(a *app, p *pull.Pulled) {
	signed := 0
	for _, v := range p.Verified {
		if len(v.SignedBy) > 0 {
			signed++
		}
	}
	if len(p.Verified) > 0 {
		a.say("upstream: %s signed as the policy demands, %d taken unsigned as it allows", command.Plural(signed, "image", "images"), len(p.Verified)-signed)
	}
	if p.Attached > 0 {
		a.say("upstream: %s taken along", command.Plural(p.Attached, "signature, attestation or SBOM", "signatures, attestations and SBOMs"))
	}
}
