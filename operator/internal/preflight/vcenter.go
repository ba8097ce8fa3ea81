package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

const (
	certificate     = ID("vcenter-certificate")
	certificateEnds = 30 * 24 * time.Hour // the time before its end in which the check warns
	passwordEnds    = 14 * 24 * time.Hour // likewise
	connection      = ID("vcenter-connection")
	maxVCenters     = 5 // the storage driver's limit
)

// needsKnown reports whether each vCenter's requirements are known.
func needsKnown(s *Snapshot) bool {
	return someReadable(s) && !slices.ContainsFunc(s.VCenters, func(v VCenter) bool { return v.Unresolved })
}

// upgradeRequested reports whether an inspection looked for what vSphere 9 removes in a vCenter before 9.
func upgradeRequested(s *Snapshot) bool {
	return slices.ContainsFunc(s.readable(), func(v *VCenter) bool { return v.Removed != nil })
}

// about returns the check that an error of a vCenter belongs to.
func about(err error) ID {
	op := ""
	if f := fault.All(err); len(f) > 0 {
		op = f[0].Op
	}
	switch reason := fault.ReasonOf(err); {
	case reason == fault.NotFound && op == "find datacenters in":
		return "vcenter-datacenters"
	case slices.Contains([]fault.Reason{fault.Unauthorized, fault.AccountLocked, fault.Forbidden, fault.NotFound}, reason),
		op == "log in to" && (reason == fault.InvalidInput || reason == fault.Throttled):
		return "vcenter-account" // or its Secret
	case reason == fault.Incompatible, reason == fault.Conflict,
		(op == "use" || op == "connect to") && reason == fault.InvalidInput:
		return "vcenter-version" // it is no vCenter, another one, or an old one
	case reason == fault.CertificateInvalid, op == "read the CA certificates of":
		return certificate // unlike a connection, it does not recover by itself
	}
	return connection
}

// failed returns a check that reports the vCenters' errors that belong to id.
func failed(id ID) func(*Snapshot) []found {
	return func(s *Snapshot) (out []found) {
		for i := range s.VCenters {
			v := &s.VCenters[i]
			for _, err := range fault.Split(v.Err) {
				if about(err) == id {
					out = append(out, found{on: v.Name, object: v.Server, what: err.Error(), remedy: fault.HintOf(err)})
				}
			}
		}
		return out
	}
}

func accounts(s *Snapshot) []found {
	out := failed("vcenter-account")(s)
	for i := range s.VCenters {
		v := &s.VCenters[i]
		if !v.Ends.IsZero() && v.Ends.Sub(s.Now) < passwordEnds {
			out = append(out, found{on: v.Name, object: v.Username, action: Warn,
				what: "its password ends on " + v.Ends.Format(time.DateOnly),
				remedy: "`vdoctl users rotate --username ADMIN --secret NAME`; if you set another password, " +
					"remove the Secret's annotation vdo.vmware.com/password-ends"})
		}
		strict := v.CSI && !Older(s.Wants.CSIVersion, "3.1.0")
		if strict && v.Username != "" && !render.QualifiedAccount(v.Username) {
			out = append(out, found{
				on: v.Name, object: v.Username, drivers: []matrix.Driver{matrix.CSI},
				what: "the user name has no domain, or other characters than letters, digits, - and . (and _ before the @): CSI from 3.1 on refuses it",
				remedy: "write the user name as NAME@DOMAIN: correct " +
					cmp.Or(v.Given, "username in the Secret of VsphereCloudConfig "+v.Name)})
		}
	}
	return out
}

func versions(s *Snapshot) []found {
	out := failed("vcenter-version")(s)
	for i := range s.VCenters {
		v := &s.VCenters[i]
		if v.Err != nil || !v.CSI {
			continue
		}
		f := found{on: v.Name, object: v.Server, of: v.Version, action: Warn}
		if Older(v.Version, "7.0.0") && !Older(s.Wants.CSIVersion, "3.2.0") {
			f.what = "the storage driver from 3.2 on does not start with a vCenter 6.7, nor beside one"
			f.remedy = "upgrade the vCenter to 7.0 U3 or later, or pin csi to 3.1 in spec.drivers"
			out = append(out, f)
		}
		if s.Wants.Snapshots && Older(v.Version, forSnapshots) {
			f.what = "snapshotClasses are configured, and the vCenter makes no snapshots of volumes before 7.0 U3"
			f.remedy = "upgrade the vCenter to 7.0 U3 or later, or take spec.storageProvider.snapshotClasses out"
			out = append(out, f)
		}
	}
	return out
}

// forSnapshots is the lowest version of vCenter and ESXi that supports volume snapshots: 7.0 U3.
const forSnapshots = "7.0.3"

// Older reports whether a version is before least. Pre-releases of least are not older, nor is a text that is no
// version.
func Older(version, least string) bool {
	v, err := numbers(version)
	return err == nil && v.LessThan(semver.MustParse(least+"-0"))
}

// numbers parses the first three numbers of a version: some builds have four.
func numbers(version string) (*semver.Version, error) {
	parts := strings.Split(version, ".")
	return semver.NewVersion(strings.Join(parts[:min(3, len(parts))], "."))
}

func lacking(_ *Snapshot, v *VCenter) (out []found) {
	for _, l := range v.Lacking {
		what := fmt.Sprintf("the account lacks %s on %s", strings.Join(l.Privileges, ", "), kindNames[l.Kind])
		out = append(out, found{object: l.Object, what: what})
	}
	if len(v.Shares) > 0 && !slices.ContainsFunc(v.Shares, func(s Share) bool { return s.May }) {
		out = append(out, found{object: v.Shares[0].Cluster,
			what:   "the account lacks Host.Config.Storage on each vSAN cluster: no file volume is made",
			remedy: "grant it on the clusters for file shares: `vdoctl users plan -o govc`"})
	}
	return out
}

// maxPrivileges is how many privileges a finding names: an administrator has hundreds.
const maxPrivileges = 3

// excess finds privileges that no driver needs, also under another name of the same vCenter with the same account.
func excess(s *Snapshot, v *VCenter) (out []found) {
	if v.Given != "" {
		return nil // the account of a flag, such as an administrator's, is not the drivers'
	}
	stays := s.Cluster.StorageInstalled && !s.Wants.CSI // volumes may keep a driver that is no longer requested
	for _, x := range v.Excess {
		beyond := privileges.Beyond(privileges.Features{Block: stays, File: stays}, x.Privileges)
		for i := range s.VCenters {
			if o := &s.VCenters[i]; o.ID == v.ID && o.Name != v.Name && privileges.SameUser(o.Username, v.Username) {
				beyond = privileges.Beyond(s.Wants.FeaturesAt(o.Use, &s.Cluster), beyond)
			}
		}
		if len(beyond) > 0 {
			what := "the account may do more than the drivers need on " + kindNames[x.Kind]
			out = append(out, found{object: x.Object, of: fault.Few(beyond, maxPrivileges), what: what})
		}
	}
	return out
}

var kindNames = map[privileges.Kind]string{
	privileges.Root: "the vCenter's root", privileges.Ancestor: "what the nodes' VMs are in", privileges.VM: "nodes' VMs",
	privileges.Datastore: "datastores", privileges.Cluster: "clusters", privileges.Host: "hosts of the nodes' clusters",
}

func certificates(s *Snapshot) []found {
	return append(failed(certificate)(s), vcenters(certificateLasts)(s)...)
}

func certificateLasts(s *Snapshot, v *VCenter) []found {
	switch {
	case v.Insecure:
		return []found{{action: Warn, what: "its certificate is not checked", remedy: "set spec.ca or spec.thumbprint in VsphereCloudConfig " + v.Name + ", and take insecure away"}}
	case !v.CertificateExpires.IsZero() && v.CertificateExpires.Sub(s.Now) < certificateEnds:
		ends := v.CertificateExpires.UTC().Format(time.DateOnly)
		return []found{{action: Warn, what: "its certificate ends on " + ends}}
	}
	return nil
}

// removedByNine finds what vSphere 9 removes: Broadcom KB 314324 and KB 379388.
func removedByNine(_ *Snapshot, v *VCenter) (out []found) {
	if v.Removed == nil {
		return nil
	}
	for _, domain := range v.Removed.WindowsDomains {
		out = append(out, found{object: domain,
			what:   "vCenter uses Integrated Windows Authentication for a domain, which vCenter 9 does not have",
			remedy: "before an upgrade to vCenter 9, replace it by AD over LDAPS with the same domain name and alias, or by federation: vSphere Client > Administration > Single Sign On > Configuration"})
	}
	for _, cluster := range v.Removed.Baselines {
		out = append(out, found{object: cluster,
			what:   "a cluster's hosts are patched by baselines, which vCenter 9 does not do for ESXi 9",
			remedy: "before an upgrade to vCenter 9, manage the cluster with an image: vSphere Client > cluster > Updates > Image"})
	}
	return out
}

func hostVersions(s *Snapshot, b behind) (out []found) {
	host := b.vcenter.Objects[b.machine.Host]
	f := found{object: b.vcenter.Path(b.machine.Host), of: "ESXi " + host.Version}
	if minor(host.Version) != "" && minor(host.Version) != minor(b.vcenter.Version) {
		f.what = "hosts have another release than their vCenter " + b.vcenter.Version
		out = append(out, f)
	}
	if s.Wants.Snapshots && b.vcenter.CSI && Older(host.Version, forSnapshots) {
		f.what = "snapshotClasses are configured, and hosts make no snapshots of volumes before 7.0 U3"
		f.remedy = "upgrade the hosts to 7.0 U3 or later: vSphere Client > Lifecycle Manager"
		out = append(out, f)
	}
	return out
}

func minor(version string) string {
	v, err := numbers(version)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", v.Major(), v.Minor())
}
