package cli

import (
	"errors"
	"slices"
	"strings"

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
	drivers, kubernetes, vSphere, releases, services, platforms []string
	operator, jumpHost                                          string
}

func (f *selectionFlags) bind(cmd *cobra.Command) {
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		fl.StringSliceVar(&f.drivers, "drivers", nil, "`DRIVERS` to take: cpi, csi, cni, snapshot-controller (default cpi,csi,snapshot-controller); none for services alone")
		fl.StringSliceVar(&f.kubernetes, "k8s", nil, "Kubernetes `VERSIONS` to cover: 1.33, 1.32-1.34 or a list (default the last three that the matrix covers)")
		fl.StringSliceVar(&f.vSphere, "vsphere", nil, "vSphere `VERSIONS` that every driver must support: 8.0.3, 7.0U3 or a list")
		fl.StringArrayVar(&f.releases, "release", nil, "take this release: `DRIVER@VERSION` such as csi@3.5.1, or of a service haproxy@3.2.23 in place of the newest (repeatable)")
		fl.StringVar(&f.operator, "operator", "", "take VDO's own operator as well: its `IMAGE`, with a version as tag; its install manifests come from this program")
		fl.StringSliceVar(&f.services, "services", nil, "`SERVICES` to take besides drivers: sip, which is the load balancer (haproxy), login (dex) and jump host of tenant clusters")
		fl.StringVar(&f.jumpHost, "jump-host", "", "`IMAGE` of VDO's own jump host, with a version as tag (default vdo-jumphost beside the image of --operator)")
		fl.StringSliceVar(&f.platforms, "platform", []string{"all"}, "`PLATFORMS` to take: linux/amd64, a list such as linux/amd64,linux/arm64, or all")
	})
}

// selects tells whether a selection flag was given: it contradicts --lock.
func selects(cmd *cobra.Command) (flag string, ok bool) {
	for _, name := range []string{"drivers", "k8s", "vsphere", "release", "operator", "services", "jump-host", "platform"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			return "--" + name, true
		}
	}
	return "", false
}

// request reads the selection flags, and reports all that is wrong with them.
func (f *selectionFlags) request() (catalog.Request, []image.Platform, error) {
	var p flagProblems
	req := catalog.Request{NoDrivers: slices.Equal(f.drivers, []string{"none"})}
	if req.NoDrivers {
		p = f.withoutDrivers()
	} else {
		req.Drivers = each(&p, "--drivers", f.drivers, matrix.ParseDriver, "take some of cpi, csi, cni, snapshot-controller")
	}
	minors := each(&p, "--k8s", f.kubernetes, matrix.ParseMinors, "write 1.33, a range 1.32-1.34, or a list 1.31,1.33")
	req.Kubernetes = slices.Concat(minors...)
	req.VSphere = each(&p, "--vsphere", f.vSphere, matrix.ParseVSphere, "write 8.0.3 or 8.0U3")
	req.Releases = each(&p, "--release", f.releases, parseRelease, "write DRIVER@VERSION such as csi@3.5.1")
	sets := each(&p, "--services", f.services, parseServices, "take sip, or leave the flag out")
	req.Services = slices.Concat(sets...)
	platforms, err := image.ParsePlatforms(f.platforms)
	if err != nil {
		p = append(p, flags.Bad("--platform", strings.Join(f.platforms, ","),
			errors.New("not a platform, or a list of platforms"), fault.HintOf(err)))
	}
	return req, platforms, fault.Join(p...)
}

type flagProblems []error

// each reads the values of a flag that may have several.
func each[T any](p *flagProblems, flag string, values []string, parse func(string) (T, error), hint string) []T {
	var out []T
	for _, s := range values {
		v, err := parse(s)
		if err != nil {
			*p = append(*p, flags.Bad(flag, s, err, hint))
		}
		out = append(out, v)
	}
	return out
}

// servicesSIP is the set of services of tenant clusters.
const servicesSIP = "sip"

func parseServices(s string) ([]matrix.Driver, error) {
	if s != servicesSIP {
		return nil, errors.New("no such set of services")
	}
	return matrix.Services(), nil
}

// parseRelease reads a release of a driver or of a service.
func parseRelease(s string) (matrix.ReleaseID, error) {
	name, _, _ := strings.Cut(s, "@")
	if _, err := matrix.ParseService(name); err == nil {
		return matrix.ParseServiceID(s)
	}
	return matrix.ParseReleaseID(s)
}

// withoutDrivers are the flags that contradict --drivers none.
func (f *selectionFlags) withoutDrivers() (p flagProblems) {
	if len(f.services) == 0 {
		p = append(p, flags.Bad("--drivers", "none", errors.New("nothing is left to take"), "add --services sip, or name drivers"))
	}
	if len(f.kubernetes) > 0 || len(f.vSphere) > 0 {
		p = append(p, flags.Bad("--drivers", "none", errors.New("--k8s and --vsphere choose drivers"), "leave them out, or name drivers"))
	}
	return p
}

// jumpHostInput reads --jump-host, or finds it beside --operator; nil where no services
// are asked for.
func (f *selectionFlags) jumpHostInput() (*matrix.ServiceRelease, error) {
	switch {
	case len(f.services) == 0 && f.jumpHost != "":
		return nil, flags.Bad("--jump-host", f.jumpHost, errors.New("no services are asked for"), "add --services sip")
	case len(f.services) == 0:
		return nil, nil
	}
	reference, err := f.jumpHostImage()
	if err != nil {
		return nil, err
	}
	s, err := lock.NewJumpHost(reference)
	if err != nil {
		return nil, flags.Bad("--jump-host", reference, err, "write the image with its version as tag: registry.example/vdo-jumphost:v1.2.3")
	}
	return s, nil
}

func (f *selectionFlags) jumpHostImage() (string, error) {
	if f.jumpHost != "" {
		return f.jumpHost, nil
	}
	operator, err := f.operatorInput()
	if err != nil {
		return "", err
	}
	if operator != nil {
		if beside, ok := lock.JumpHostBeside(operator.Image); ok {
			return beside, nil
		}
	}
	return "", flags.Bad("--services", servicesSIP, errors.New("it is not said where the image of the jump host is"),
		"add --jump-host registry.example/vdo-jumphost:v1.2.3, or --operator with the image vdo-operator beside it")
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
