package cli

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/lock"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// selectionFlags say which drivers a bundle holds.
type selectionFlags struct {
	drivers, kubernetes, vSphere, releases []string
	operator, platform                     string
}

func (f *selectionFlags) bind(cmd *cobra.Command) {
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		fl.StringSliceVar(&f.drivers, "drivers", nil, "`DRIVERS` to take: cpi, csi, cni, snapshot-controller (default cpi,csi,snapshot-controller)")
		fl.StringSliceVar(&f.kubernetes, "k8s", nil, "Kubernetes `VERSIONS` to cover: 1.33, 1.32-1.34 or a list (default the last three that the matrix covers)")
		fl.StringSliceVar(&f.vSphere, "vsphere", nil, "vSphere `VERSIONS` that every driver must support: 8.0.3, 7.0U3 or a list")
		fl.StringArrayVar(&f.releases, "release", nil, "take this release: `DRIVER@VERSION` such as csi@3.5.1 (repeatable)")
		fl.StringVar(&f.operator, "operator", "", "take VDO's own operator as well: its `IMAGE`, with a version as tag; its install manifests come from this program")
		fl.StringVar(&f.platform, "platform", "all", "platform to take: `OS/ARCH` such as linux/amd64, or all")
	})
}

// selects tells whether a selection flag was given: it contradicts --lock.
func selects(cmd *cobra.Command) (flag string, ok bool) {
	for _, name := range []string{"drivers", "k8s", "vsphere", "release", "operator", "platform"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			return "--" + name, true
		}
	}
	return "", false
}

// request reads the selection flags, and reports all that is wrong with them.
func (f *selectionFlags) request() (catalog.Request, image.Platform, error) {
	var req catalog.Request
	var problems []error
	for _, s := range f.drivers {
		d, err := matrix.ParseDriver(s)
		if err != nil {
			problems = append(problems, flags.Bad("--drivers", s, err, "take some of cpi, csi, cni, snapshot-controller"))
		}
		req.Drivers = append(req.Drivers, d)
	}
	for _, s := range f.kubernetes {
		minors, err := matrix.ParseMinors(s)
		if err != nil {
			problems = append(problems, flags.Bad("--k8s", s, err, "write 1.33, a range 1.32-1.34, or a list 1.31,1.33"))
		}
		req.Kubernetes = append(req.Kubernetes, minors...)
	}
	for _, s := range f.vSphere {
		v, err := matrix.ParseVSphere(s)
		if err != nil {
			problems = append(problems, flags.Bad("--vsphere", s, err, "write 8.0.3 or 8.0U3"))
		}
		req.VSphere = append(req.VSphere, v)
	}
	for _, s := range f.releases {
		id, err := matrix.ParseReleaseID(s)
		if err != nil {
			problems = append(problems, flags.Bad("--release", s, err, "write DRIVER@VERSION such as csi@3.5.1"))
		}
		req.Releases = append(req.Releases, id)
	}
	platform, err := image.ParsePlatform(f.platform)
	if err != nil {
		problems = append(problems, flags.Bad("--platform", f.platform, errors.New("not a platform"), fault.HintOf(err)))
	}
	return req, platform, fault.Join(problems...)
}

// operatorInput reads --operator; nil where it was not given.
func (f *selectionFlags) operatorInput() (*lock.Operator, error) {
	if f.operator == "" {
		return nil, nil
	}
	o, err := lock.NewOperator(f.operator)
	if err != nil {
		return nil, flags.Bad("--operator", f.operator, err, "write the image with the operator's version as tag: registry.example/vdo-operator:v1.2.3")
	}
	return o, nil
}
