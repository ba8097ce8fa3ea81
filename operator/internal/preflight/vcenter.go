package preflight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

const (
	certificateEnds = 30 * 24 * time.Hour // before its end it is worth a warning
	clocksApart     = 30 * time.Second    // more is worth a warning: logins by token fail with minutes
	maxVCenters     = 5                   // that the storage driver takes
)

func vcenterChecks() []check {
	return []check{
		{id: "vcenter-connection", why: "the drivers cannot work without it; other vCenters were checked all the same", applies: anyVCenter, run: connections},
		{id: "vcenter-account", why: "a driver whose login is refused tries again and again, until the account is locked", applies: anyVCenter, run: accounts, seen: allAnswered},
		{id: "vcenter-datacenters", why: "nodes and volumes are looked for in the datacenters of the configuration alone", applies: anyVCenter, run: datacenters, seen: allAnswered},
		{id: "vcenter-version", why: "the storage driver ends at its start with an older vCenter", applies: anyVCenter, run: versions, seen: allAnswered},
		{id: "vcenter-privileges", why: "a call without its privilege fails when the first volume is made or attached, not at the start", applies: someReadable, run: lacking},
		{id: "vcenter-excess", why: "whoever reads the account's password, on a node or in a backup, may do as much", applies: needsKnown, run: excess},
		{id: "vcenter-certificate", why: "when it ends, or is replaced where a thumbprint is configured, every connection of the drivers fails", applies: someReadable, run: certificates},
		{id: "vcenter-clock", why: "tokens and certificates are refused, and events of vCenter and cluster do not match, where clocks differ", applies: someReadable, run: clocks},
		{id: "vcenter-tasks", why: "the drivers wait for tasks: without reading them a volume is made and the call fails all the same", applies: someReadable, run: part(Tasks, "give the account the role ReadOnly on the vCenter's root")},
		{id: "vcenter-cns", why: "volumes are made through cloud native storage", applies: forStorage, run: part(CNS, "start the service vsan-health in the vCenter (VAMI > Services), and give the account Cns.Searchable on the root")},
		{id: "host-version", why: "new features of the storage driver work only when all hosts have the vCenter's release", applies: machinesKnown, run: hostVersions},
	}
}

// needsKnown says whether all that the drivers need in each vCenter is known.
func needsKnown(s *Snapshot) bool {
	return someReadable(s) && !slices.ContainsFunc(s.VCenters, func(v VCenter) bool { return v.Unresolved })
}

func forStorage(s *Snapshot) bool { return s.Wants.CSI && someReadable(s) }

// about tells of which check an error of a vCenter is.
func about(err error) ID {
	switch fault.ReasonOf(err) {
	case fault.Unauthorized, fault.AccountLocked, fault.Forbidden:
		return "vcenter-account"
	case fault.NotFound:
		if f := fault.All(err); len(f) > 0 && f[0].Op == "find datacenters in" {
			return "vcenter-datacenters"
		}
		return "vcenter-account" // the Secret
	case fault.Incompatible:
		if strings.Contains(err.Error(), "older than") {
			return "vcenter-version"
		}
	case fault.InvalidInput, fault.Throttled:
		if f := fault.All(err); len(f) > 0 && f[0].Op == "log in to" {
			return "vcenter-account"
		}
	}
	return "vcenter-connection"
}

// beforeLogin are what is done in the cluster before an account is tried.
var beforeLogin = []string{"read", "read Secret", "read ConfigMap", "read the credentials of"}

// whyNot is why it matters that an account could not be tried; "" of one that was, of which the
// check has it.
func whyNot(err error) string {
	if f := fault.All(err); about(err) == "vcenter-account" && len(f) > 0 && slices.Contains(beforeLogin, f[0].Op) {
		return "without it the vCenter is not asked, and what the drivers lack there is not known"
	}
	return ""
}

// failed are the vCenters' errors that are of one check.
func failed(s *Snapshot, id ID) []found {
	var out []found
	for i := range s.VCenters {
		v := &s.VCenters[i]
		if v.Err != nil && about(v.Err) == id {
			out = append(out, found{on: v.Name, object: v.Server, what: v.Err.Error(), action: BlockInstall, why: whyNot(v.Err), remedy: fault.HintOf(v.Err)})
		}
	}
	return out
}

func connections(s *Snapshot) []found {
	out := failed(s, "vcenter-connection")
	for i := range s.VCenters {
		v := &s.VCenters[i]
		if err := v.Failed[Inventory]; err != nil {
			out = append(out, found{on: v.Name, object: v.Server, what: fmt.Sprintf("the inventory could not be read: %v", err), action: BlockInstall, remedy: fault.HintOf(err)})
		}
	}
	return out
}

func datacenters(s *Snapshot) []found { return failed(s, "vcenter-datacenters") }

func accounts(s *Snapshot) []found {
	out := failed(s, "vcenter-account")
	for i := range s.VCenters {
		if v := &s.VCenters[i]; v.UsedByCSI && v.Username != "" && !render.QualifiedAccount(v.Username) {
			out = append(out, found{
				on: v.Name, object: v.Username, action: BlockInstall,
				what:   "the user name has no domain, or other characters than letters, digits, - and . (and _ before the @): CSI from 3.1 on refuses it",
				remedy: "write NAME@DOMAIN as username into the Secret of VsphereCloudConfig " + v.Name})
		}
	}
	return out
}

func versions(s *Snapshot) []found {
	out := failed(s, "vcenter-version")
	for i := range s.VCenters {
		v := &s.VCenters[i]
		if v.Err != nil || !v.UsedByCSI {
			continue
		}
		if older(v.Version, 7, 0) {
			out = append(out, found{
				on: v.Name, object: v.Server, of: v.Version, action: Warn,
				what:   "the storage driver from 3.2 on does not start with a vCenter 6.7, nor beside one",
				remedy: "upgrade the vCenter to 7.0 U3 or later, or pin csi to 3.1 in spec.drivers"})
		}
		if s.Wants.Snapshots && older(v.Version, forSnapshots...) {
			out = append(out, found{on: v.Name, object: v.Server, of: v.Version, action: Warn,
				what: "snapshotClasses are configured, and the vCenter makes no snapshots of volumes before 7.0 U3", why: noSnapshots,
				remedy: "upgrade the vCenter to 7.0 U3 or later, or take spec.storageProvider.snapshotClasses out"})
		}
	}
	return out
}

// forSnapshots is the least version of vCenter and ESXi that makes snapshots of volumes: 7.0 U3.
var forSnapshots = []int{7, 0, 3}

const noSnapshots = "a VolumeSnapshot does not become ready: the storage driver refuses to make it"

// older says whether a version is before another one. What is no version is not.
func older(version string, least ...int) bool {
	numbers := strings.Split(version, ".")
	if len(numbers) < 2 {
		return false
	}
	for i, l := range least {
		n := 0
		if i < len(numbers) {
			var err error
			if n, err = strconv.Atoi(numbers[i]); err != nil {
				return false
			}
		}
		if n != l {
			return n < l
		}
	}
	return false
}

func lacking(s *Snapshot) []found {
	var out []found
	for _, v := range s.readable() {
		out = append(out, v.unread(Privileges, "give the account the role ReadOnly on the vCenter's root")...)
		for _, l := range v.Lacking {
			out = append(out, found{
				on: v.Name, object: l.Object, action: Warn,
				what:   fmt.Sprintf("the account lacks %s on %s", strings.Join(l.Privileges, ", "), kindNames[l.Kind]),
				remedy: "see what the account needs, as a script for the vCenter: vdoctl users plan -o govc"})
		}
		if len(v.Shares) > 0 && !slices.ContainsFunc(v.Shares, func(s Share) bool { return s.May }) {
			out = append(out, found{on: v.Name, object: v.Shares[0].Cluster, action: Warn,
				what:   "the account lacks Host.Config.Storage on each vSAN cluster: no file volume is made",
				remedy: "grant it on the clusters for file shares: vdoctl users plan -o govc"})
		}
	}
	return out
}

// maxPrivileges is how many privileges a finding names: an administrator has hundreds.
const maxPrivileges = 3

func excess(s *Snapshot) []found {
	var out []found
	for _, v := range s.readable() {
		out = append(out, v.unread(Excess, "")...)
		for _, x := range v.Excess {
			names := strings.Join(x.Privileges[:min(len(x.Privileges), maxPrivileges)], ", ")
			if more := len(x.Privileges) - maxPrivileges; more > 0 {
				names += fmt.Sprintf(" and %d more", more)
			}
			out = append(out, found{
				on: v.Name, object: x.Object, action: Warn,
				what:   fmt.Sprintf("the account may do more than the drivers need on %s: %s", kindNames[x.Kind], names),
				remedy: "give the drivers an account of their own: vdoctl users rotate --username ADMIN --principal NAME@DOMAIN; its roles as a script: vdoctl users plan --principal NAME@DOMAIN -o govc"})
		}
	}
	return out
}

var kindNames = map[privileges.Kind]string{
	privileges.Root: "the vCenter's root", privileges.Ancestor: "what the nodes' VMs are in", privileges.VM: "nodes' VMs",
	privileges.Datastore: "datastores", privileges.Cluster: "clusters", privileges.Host: "hosts of the nodes' clusters",
}

func certificates(s *Snapshot) []found {
	var out []found
	for _, v := range s.readable() {
		switch {
		case v.Insecure:
			out = append(out, found{on: v.Name, object: v.Server, action: Warn,
				what: "its certificate is not checked", remedy: "set spec.ca or spec.thumbprint in VsphereCloudConfig " + v.Name + ", and take insecure away"})
		case !v.CertificateExpires.IsZero() && v.CertificateExpires.Sub(s.Now) < certificateEnds:
			out = append(out, found{on: v.Name, object: v.Server, action: Warn,
				what:   "its certificate ends on " + v.CertificateExpires.UTC().Format(time.DateOnly),
				remedy: "renew it: vSphere Client > Administration > Certificates > Certificate Management; then correct spec.thumbprint, where it is set"})
		}
	}
	return out
}

func clocks(s *Snapshot) []found {
	var out []found
	for _, v := range s.readable() {
		out = append(out, v.unread(Clock, "")...)
		if v.Skew.Abs() > clocksApart {
			side := "ahead of"
			if v.Skew < 0 {
				side = "behind"
			}
			out = append(out, found{on: v.Name, object: v.Server, action: Warn,
				what:   fmt.Sprintf("its clock is %s %s ours", v.Skew.Abs().Round(time.Second), side),
				remedy: "give vCenter, hosts, nodes and this machine the same time server: VAMI (https://" + v.Server + ":5480) > Time"})
		}
	}
	return out
}

// part is the check that a part could be read.
func part(p Part, remedy string) func(*Snapshot) []found {
	return func(s *Snapshot) []found {
		var out []found
		for _, v := range s.readable() {
			if p != CNS || v.UsedByCSI {
				out = append(out, v.unread(p, remedy)...)
			}
		}
		return out
	}
}

func hostVersions(s *Snapshot) []found {
	var out []found
	for _, b := range s.nodesMachines() {
		host := b.vcenter.Objects[b.machine.Host]
		if minor(host.Version) != "" && minor(host.Version) != minor(b.vcenter.Version) {
			out = append(out, found{on: b.vcenter.Name, object: b.vcenter.Path(b.machine.Host), of: "ESXi " + host.Version, action: Warn,
				what:   "hosts have another release than their vCenter " + b.vcenter.Version,
				remedy: "upgrade the hosts: vSphere Client > Lifecycle Manager"})
		}
		if s.Wants.Snapshots && b.vcenter.UsedByCSI && older(host.Version, forSnapshots...) {
			out = append(out, found{on: b.vcenter.Name, object: b.vcenter.Path(b.machine.Host), of: "ESXi " + host.Version, action: Warn,
				what: "snapshotClasses are configured, and hosts make no snapshots of volumes before 7.0 U3", why: noSnapshots,
				remedy: "upgrade the hosts to 7.0 U3 or later: vSphere Client > Lifecycle Manager"})
		}
	}
	return out
}

// minor is the first two numbers of a version, or "".
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return ""
	}
	for _, p := range parts[:2] {
		if _, err := strconv.Atoi(p); err != nil {
			return ""
		}
	}
	return parts[0] + "." + parts[1]
}

func clusterChecks() []check {
	return []check{
		{id: "cluster", why: "nodes, and what is installed, are read from the API server", applies: func(s *Snapshot) bool { return !s.Cluster.Skipped }, run: func(s *Snapshot) []found {
			if s.Cluster.Err == nil {
				return nil
			}
			return []found{{what: s.Cluster.Err.Error(), action: BlockInstall, remedy: fault.HintOf(s.Cluster.Err)}}
		}},
		{id: "cluster-id", why: "the storage driver ends at its start when it finds both", applies: func(s *Snapshot) bool {
			return s.Wants.CSI && s.Cluster.Err == nil && !s.Cluster.Skipped
		}, run: clusterID},
		{id: "topology-vcenters", why: "the storage driver ends at its start otherwise", applies: func(s *Snapshot) bool { return s.Wants.CSI && anyVCenter(s) }, run: severalVCenters},
	}
}

func clusterID(s *Snapshot) []found {
	if s.Wants.ClusterID == "" || s.Cluster.KeptClusterID == "" || s.Wants.ClusterID == s.Cluster.KeptClusterID {
		return nil
	}
	return []found{{
		object: "ConfigMap vmware-system-csi/vsphere-csi-cluster-id", action: BlockInstall,
		what:   "the cluster id is in spec.storageProvider.clusterID and in what the driver made for itself before",
		remedy: "take clusterID out of the VDOConfig: volumes are known by the one in the ConfigMap"}}
}

func severalVCenters(s *Snapshot) []found {
	n := 0
	for i := range s.VCenters {
		if s.VCenters[i].UsedByCSI {
			n++
		}
	}
	var out []found
	if n > 1 && len(s.Wants.Categories) == 0 {
		out = append(out, found{what: fmt.Sprintf("%d vCenters and no topology categories", n), action: BlockInstall,
			remedy: "name the tag categories of regions and zones in spec.storageProvider.topologyCategories"})
	}
	if n > maxVCenters {
		out = append(out, found{what: fmt.Sprintf("%d vCenters: the storage driver takes %d", n, maxVCenters), action: BlockInstall,
			remedy: "name fewer in spec.storageProvider.vsphereCloudConfigs"})
	}
	return out
}
