package vdoctl

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// answers are what is asked for.
type answers struct {
	bundle, vcenter, server, port, certificate, thumbprint, caFile string
	username, password, datacenters, drivers, region, zone         string
	upgrade                                                        string
	several                                                        bool     // the storage driver has vCenters besides this one
	absent                                                         []string // those, where none of them is there
	used                                                           bool     // the drivers that use this one are said already
	tags                                                           bool     // categories of tags are asked for
	checks                                                         bool     // how the certificate is checked was said by a flag
}

// How a vCenter's certificate is checked.
const (
	byThumbprint, byCA, bySystem = "thumbprint", "ca-file", "system"
)

// The drivers that may be asked for.
const bothDrivers, csiAlone, cpiAlone = "both", "csi", "cpi"

// field is one question: a flag, and what is asked where the flag is not given.
type field struct {
	flag, title, help, usage, standard string
	to                                 *string
	choices                            []string
	valid                              func(string) error
	needed                             func() bool // nil: always
}

func (a *answers) fields() []field {
	return []field{
		{flag: "bundle", title: "Bundle in the mirror", help: "REGISTRY/REPO:TAG, as it was pushed", usage: "`REGISTRY/REPO:TAG` of the bundle in the site's mirror", to: &a.bundle, valid: isReference},
		{flag: "drivers", title: "Which drivers", help: "csi: storage; cpi: cloud provider", usage: "which drivers (`WHICH`): both, csi or cpi", standard: bothDrivers, to: &a.drivers, choices: []string{bothDrivers, csiAlone, cpiAlone}, valid: oneOf(bothDrivers, csiAlone, cpiAlone)},
		{flag: "vcenter", title: "Name for the vCenter", help: "its name in the cluster; a new one adds a vCenter", usage: "`NAME` of the vCenter's resource; a new one adds a vCenter", standard: "vcenter", to: &a.vcenter, valid: isName},
		{flag: "server", title: "Address of the vCenter", help: "host name or IP address, without https:// and port", usage: "`HOST` name or IP address of the vCenter, without https:// and port", to: &a.server, valid: isHost},
		{flag: "port", title: "Port of its API", usage: "`PORT` of its API", standard: "443", to: &a.port, valid: isPort},
		{flag: "certificate", title: "How its certificate is checked", help: "system: by public authorities; thumbprint: it is this very one; ca-file: by your authority's certificate", usage: "`HOW` its certificate is checked: system, thumbprint or ca-file", standard: bySystem, to: &a.certificate, choices: []string{bySystem, byThumbprint, byCA}, valid: oneOf(bySystem, byThumbprint, byCA)},
		{flag: "thumbprint", title: "Thumbprint of its certificate", help: "SHA-1 or SHA-256, in hex pairs with colons", usage: "`HEX` pairs with colons, SHA-1 or SHA-256, of its certificate", to: &a.thumbprint, valid: isThumbprint, needed: func() bool { return a.certificate == byThumbprint }},
		{flag: "vcenter-ca-file", title: "File with its authority's certificate", help: "PEM", usage: "PEM `FILE` of the authority that signed its certificate", to: &a.caFile, valid: isAuthority, needed: func() bool { return a.certificate == byCA && a.caFile != keptCA }},
		{flag: "username", title: "Account of the drivers", help: "NAME@DOMAIN; `vdoctl users` makes one with the least privileges", usage: "`NAME@DOMAIN` of the vCenter's account", to: &a.username, valid: isAccount},
		{flag: "datacenters", title: "Datacenters, with commas", help: "inventory paths; none for all", usage: "inventory `PATHS` of datacenters, with commas; none for all", to: &a.datacenters},
		{flag: "region-category", title: "Tag category of regions", help: "for clusters with zones", usage: "`CATEGORY` of tags of regions; none without topology", to: &a.region, valid: a.withZone},
		{flag: "zone-category", title: "Tag category of zones", usage: "`CATEGORY` of tags of zones; together with regions", to: &a.zone, valid: required, needed: func() bool { return a.region != "" }},
		{flag: "upgrade", title: "Upgrades", help: "Manual: each one waits for consent", usage: "Automatic, or Manual (`HOW`): each one waits for consent", standard: "Automatic", to: &a.upgrade, choices: []string{"Automatic", "Manual"}, valid: oneOf("Automatic", "Manual")},
	}
}

// withZone refuses zones without regions, and several vCenters without either: of those that are
// not there the name is more likely wrong. That regions need zones is asked by the next field.
func (a *answers) withZone(region string) error {
	switch {
	case region == "" && len(a.absent) > 0 && a.drivers != cpiAlone:
		names := strings.Join(a.absent, ", ")
		return &fault.Error{Reason: fault.InvalidInput, Err: fmt.Errorf("spec.storageProvider of the VDOConfig names VsphereCloudConfig %s besides %s, and there is none of that name; where it has several vCenters, the storage driver needs regions and zones", names, a.vcenter),
			Hint: "correct the name in the VDOConfig, or make it: `vdoctl configure --vcenter " + a.absent[0] + "`"}
	case region == "" && a.several && a.drivers != cpiAlone:
		return errors.New("the storage driver needs regions and zones where it has several vCenters")
	case region == "" && a.zone != "":
		return errors.New("zones need regions: give both categories, or none")
	}
	return nil
}

func required(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("it is needed")
	}
	return nil
}

// isAccount refuses what the storage driver does not start with.
func isAccount(s string) error {
	if err := required(s); err != nil {
		return err
	}
	if !render.QualifiedAccount(s) {
		return errors.New("it has no domain, or characters that the drivers do not accept: write NAME@DOMAIN")
	}
	return nil
}

func isReference(s string) error {
	if err := required(s); err != nil {
		return err
	}
	_, err := image.ParseHosted(s)
	return err
}

// isName tells whether a resource may have this name.
func isName(s string) error {
	if len(validation.IsDNS1123Label(s)) > 0 {
		return errors.New("not a name of a resource: write lower-case letters, digits and -")
	}
	return nil
}

// thumbprint is what the resource takes.
var thumbprint = regexp.MustCompile(`^([0-9A-Fa-f]{2}:){19}[0-9A-Fa-f]{2}$|^([0-9A-Fa-f]{2}:){31}[0-9A-Fa-f]{2}$`)

func isThumbprint(s string) error {
	if !thumbprint.MatchString(s) {
		return errors.New("not 20 (SHA-1) or 32 (SHA-256) pairs of hex digits with colons between them")
	}
	return nil
}

func isHost(s string) error {
	if strings.ContainsAny(s, "/@ ") {
		return errors.New("a host name or IP address alone: without https://, path or user")
	}
	return required(s)
}

func isPort(s string) error {
	if n, err := strconv.Atoi(s); err != nil || n < 1 || n > 65535 {
		return errors.New("not a number from 1 to 65535")
	}
	return nil
}

func isFileThere(s string) error {
	if info, err := os.Stat(s); err != nil || !info.Mode().IsRegular() {
		return errors.New("there is no such file")
	}
	return nil
}

func oneOf(choices ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(choices, s) {
			return nil
		}
		return fmt.Errorf("not one of %s", strings.Join(choices, ", "))
	}
}

// splitList parts a list that was typed with commas.
func splitList(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
