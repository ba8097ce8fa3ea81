package render

import (
	"bytes"
	"cmp"
	"crypto/sha1" //nolint:gosec // the form in which vCenter and the drivers write thumbprints
	"path"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/certificate"
)

// StorageVCenters returns the VsphereCloudConfigs of the storage driver, in order, each once.
func StorageVCenters(p *v1alpha1.StorageProvider) []string {
	if p == nil {
		return nil
	}
	return each(append([]string{p.VsphereCloudConfig}, p.VsphereCloudConfigs...))
}

// CloudVCenters returns the VsphereCloudConfigs of the cloud provider, in order, each once.
func CloudVCenters(p *v1alpha1.CloudProvider) []string {
	if p == nil {
		return nil
	}
	return each(p.VsphereCloudConfigs)
}

// VCenters returns the VsphereCloudConfigs of a spec's drivers, in order, each once.
func VCenters(spec *v1alpha1.VDOConfigSpec) []string {
	return each(slices.Concat(CloudVCenters(spec.Cloud()), StorageVCenters(spec.StorageProvider)))
}

func each(names []string) []string {
	var out []string
	for _, n := range names {
		if n != "" && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// vcenter is a VCenter with valid fields for both drivers' configuration. The API server checks those of the
// VsphereCloudConfig, and rendering checks the Secrets' content.
type vcenter struct {
	VCenter
	name string // of the VsphereCloudConfig
}

// config returns kind and name of the VsphereCloudConfig, for messages.
func (v vcenter) config() string { return "VsphereCloudConfig " + v.name }

// caFile returns the path of the vCenter's CA in pods, "" without one.
func (v vcenter) caFile() string {
	if v.CA == nil {
		return ""
	}
	return configDir + "/" + v.name + ".ca.crt"
}

// addCAs adds the CAs under the names of their files.
func addCAs(data map[string][]byte, vcenters []vcenter) {
	for _, v := range vcenters {
		if v.CA != nil {
			data[path.Base(v.caFile())] = v.CA
		}
	}
}

// ipv6 reports whether the server is an IPv6 address, which no key of a Secret can hold.
func (v vcenter) ipv6() bool { return strings.Contains(v.Server, ":") }

// NoVCenter returns the error for a missing VsphereCloudConfig: which object names it, and how to fix that.
func NoVCenter(op, name string) *fault.Error {
	return fault.Errorf(fault.NotFound, op, "VsphereCloudConfig "+name,
		"correct the name, or create it: `vdoctl configure --vcenter "+name+"`",
		"not found, though spec.cloudProvider or spec.storageProvider of the VDOConfig names it")
}

// vcenters returns and checks a driver's vCenters, none if the configuration is kept. It reports all problems.
func (in *Input) vcenters(d matrix.Driver, names []string) ([]vcenter, error) {
	if in.Keep[d] {
		return nil, nil
	}
	var out []vcenter
	var errs []error
	known := map[string]string{}
	for _, name := range names {
		given, ok := in.VCenters[name]
		if !ok {
			errs = append(errs, NoVCenter("configure drivers", name))
			continue
		}
		v, err := checkVCenter(name, given)
		errs = append(errs, err)
		errs = append(errs, alsoIn(known, v1alpha1.CanonicalHost(given.Server), v)) // the same name, or an alias of it
		if id := given.InstanceUUID; id != "" {
			errs = append(errs, alsoIn(known, "instance UUID "+id, v))
		}
		out = append(out, v)
	}
	return out, fault.Join(errs...)
}

// OncePerVCenter is the remedy for two VsphereCloudConfigs of one vCenter.
const OncePerVCenter = "name each vCenter in one VsphereCloudConfig only: the drivers tell vCenters apart by host, not by port"

// alsoIn refuses a vCenter that another VsphereCloudConfig has.
func alsoIn(known map[string]string, what string, v vcenter) error {
	other, twice := known[what]
	known[what] = v.name
	if !twice || v.Server == "" {
		return nil
	}
	return badVCenter(v.name, OncePerVCenter, "has the same vCenter as VsphereCloudConfig %s: %s", other, what)
}

func badVCenter(name, hint, format string, args ...any) error {
	return badSpec("VsphereCloudConfig "+name, hint, format, args...)
}

func checkVCenter(name string, given VCenter) (vcenter, error) {
	v := vcenter{given, name}
	v.Server, v.Port, v.Thumbprint = v1alpha1.BareHost(v.Server), cmp.Or(v.Port, 443), strings.ToUpper(v.Thumbprint)
	v.Credentials = Credentials{withoutLineBreak(v.Credentials.Username), withoutLineBreak(v.Credentials.Password)}
	bad := checkCredentials(v)
	if v.Insecure {
		v.Thumbprint, v.CA = "", nil // without verification the drivers need neither thumbprint nor CA
		return v, bad
	}
	var printErr, caErr error
	if strings.Count(v.Thumbprint, ":") >= sha1.Size {
		printErr = badVCenter(name, "set spec.thumbprint to the SHA-1 thumbprint, or set spec.ca",
			"the drivers compare SHA-1 thumbprints only, and spec.thumbprint is SHA-256")
	}
	v.CA, caErr = checkCA(name, given.CA)
	return v, fault.Join(bad, printErr, caErr)
}

func withoutLineBreak(s string) string {
	return strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r")
}

func checkCredentials(v vcenter) error {
	const hint = "correct the Secret that spec.credentials names"
	var bad problems
	given := v.Credentials
	for _, c := range []struct{ key, value string }{{"username", given.Username}, {"password", given.Password}} {
		bad.when(c.value == "", v.config(), hint, "the Secret has no %s", c.key)
		err := iniCan(c.value)
		bad.when(err != nil, v.config(), hint, "the Secret's %s %w", c.key, err)
	}
	return fault.Join(bad...)
}

// checkCA accepts certificates and no key, so that none is ever copied.
func checkCA(name string, given []byte) ([]byte, error) {
	if len(bytes.TrimSpace(given)) == 0 {
		return nil, nil
	}
	ca, err := certificate.Public(given)
	if err != nil {
		return nil, badVCenter(name, "put the PEM certificates of the vCenter's CA, and nothing else, into what spec.ca names", "the CA: %w", err)
	}
	return ca, nil
}
