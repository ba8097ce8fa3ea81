package render

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// csiData is the content of the driver's Secret: its configuration, and the CA
// files that the configuration names.
func (r *renderer) csiData(s *source, p *v1alpha1.StorageProvider, vcenters []vcenter) (map[string][]byte, error) {
	id, idErr := r.clusterID(s, p)
	categories, topologyErr := topologyCategories(s, p, len(vcenters))
	trust, trustErr := csiTrust(s, vcenters)
	err := fault.Join(idErr, topologyErr, trustErr, checkUsers(s, vcenters),
		checkDistribution(p.ClusterDistribution), checkNetPermissions(p.FileVolumes), checkDatastores(p.FileVolumes),
		checkLimits(s, p))
	if err != nil {
		return nil, err
	}
	w := &ini{}
	w.section("Global", "")
	w.setUnlessEmpty("cluster-id", id)
	w.setUnlessEmpty("cluster-distribution", p.ClusterDistribution)
	w.setUnlessEmpty("ca-file", trust.caFile)
	w.setUnlessEmpty("thumbprint", trust.thumbprint)
	w.setUnlessEmpty("query-limit", number(p.QueryLimit))
	w.setUnlessEmpty("list-volume-threshold", number(p.ListVolumeThreshold))
	for _, v := range vcenters {
		r.csiVCenter(w, s, v, p.FileVolumes)
	}
	netPermissions(w, p.FileVolumes)
	snapshotLimits(w, p.Snapshots)
	if categories != "" {
		w.section("Labels", "")
		w.set("topology-categories", categories)
	}
	data := map[string][]byte{CSIConfigKey: []byte(w.String())}
	for _, v := range vcenters {
		if v.ca != nil {
			data[v.caFile()] = v.ca
		}
	}
	return data, nil
}

func (r *renderer) csiVCenter(w *ini, s *source, v vcenter, files *v1alpha1.FileVolumes) {
	w.section("VirtualCenter", v.server)
	w.set("user", v.username)
	w.set("password", v.password)
	w.set("port", portText(v.port))
	w.set("insecure-flag", fmt.Sprint(v.insecure))
	w.setUnlessEmpty("datacenters", strings.Join(v.datacenters, ","))
	if s.since(perVCenterTrust) {
		if v.ca != nil {
			w.set("ca-file", configDir+"/"+v.caFile())
		}
		w.setUnlessEmpty("thumbprint", v.thumbprint)
	}
	if files == nil {
		return
	}
	if len(files.VsanClusters) > 0 {
		r.note("spec.storageProvider.fileVolumes.vsanClusters has no effect: CSI makes file shares on the vSAN clusters where its account has Host.Config.Storage")
	}
	if len(files.VsanDataStoreURLs) == 0 {
		return
	}
	if s.since("3.2.0") {
		r.note("spec.storageProvider.fileVolumes.vsanDataStoreUrl has no effect: CSI knows no limit to datastores from 3.2 on")
		return
	}
	w.set("targetvSANFileShareDatastoreURLs", strings.Join(files.VsanDataStoreURLs, ","))
}

// perVCenterTrust is the release from which on each vCenter has its own ca-file
// and thumbprint; before, there is one pair for all.
const perVCenterTrust = "3.3.0"

type globalTrust struct{ caFile, thumbprint string }

// csiTrust is what section Global has to say of certificates.
func csiTrust(s *source, vcenters []vcenter) (globalTrust, error) {
	if s.since(perVCenterTrust) {
		return globalTrust{}, nil
	}
	var trust globalTrust
	var first *vcenter
	for i, v := range vcenters {
		if v.insecure {
			continue // its own insecure-flag says so
		}
		if first == nil {
			first, trust.thumbprint = &vcenters[i], v.thumbprint
			if v.ca != nil {
				trust.caFile = configDir + "/" + v.caFile()
			}
			continue
		}
		if string(v.ca) != string(first.ca) || v.thumbprint != first.thumbprint {
			return trust, fault.Errorf(fault.Incompatible, "configure", s.name(),
				"give all of them one CA and no thumbprint, or use CSI 3.3 or later",
				"VsphereCloudConfigs %s and %s have different CAs or thumbprints: CSI before 3.3 has one for all vCenters", first.name, v.name)
		}
	}
	return trust, nil
}

// clusterID decides the cluster-id that the configuration names; "" leaves it out.
//
// It is how CNS tells one cluster's volumes from another's, so once there is one
// it stays: the one that the driver made (ConfigMap, CSI 3.0 and later, where
// naming it in the configuration too stops the driver), the one asked for, the one
// in use. Only without any does a release before 3.0 get the UID of kube-system,
// and a later one make its own.
func (r *renderer) clusterID(s *source, p *v1alpha1.StorageProvider) (string, error) {
	c, generates := r.in.Cluster, s.since("3.0.0")
	for _, v := range []string{p.ClusterID, c.ConfiguredClusterID} {
		if len(v) > 64 || !onOneLine(v) {
			return "", badSpec("spec.storageProvider.clusterID", "use at most 64 characters on one line", "%q cannot be a cluster id", v)
		}
	}
	switch known := cmp.Or(c.GeneratedClusterID, c.ConfiguredClusterID); {
	case p.ClusterID != "" && known != "" && p.ClusterID != known:
		return "", fault.Errorf(fault.Conflict, "configure", "spec.storageProvider.clusterID",
			fmt.Sprintf("set it to %q or leave it out", known),
			"the driver's volumes are registered under another cluster id, %q", known)
	case c.GeneratedClusterID != "" && generates:
		return "", nil
	case known != "":
		r.warnOfSharedID(known)
		return known, nil
	case p.ClusterID != "" || generates:
		return p.ClusterID, nil
	case c.UID == "":
		return "", fault.Errorf(fault.Internal, "configure", s.name(), "",
			"the UID of namespace kube-system is not known, and CSI before 3.0 needs a cluster id")
	}
	return c.UID, nil
}

// warnOfSharedID: the predecessor used the vCenter's address, the same for all
// clusters of a site.
func (r *renderer) warnOfSharedID(id string) {
	for _, name := range StorageVCenters(r.in.Spec.StorageProvider) {
		if v, ok := r.in.VCenters[name]; ok && v1alpha1.CanonicalHost(v.Server) == v1alpha1.CanonicalHost(id) {
			r.note("the storage driver's cluster id is the vCenter's address, %s: another cluster with the same id would corrupt the metadata of both", id)
		}
	}
}

func topologyCategories(s *source, p *v1alpha1.StorageProvider, vcenters int) (string, error) {
	const field = "spec.storageProvider.topologyCategories"
	var bad problems
	for i, c := range p.TopologyCategories {
		bad.when(strings.TrimSpace(c) != c || !isItem(c), field, "list each tag category as an item",
			"category %q is empty or has a comma, or space around it", c)
		bad.when(slices.Contains(p.TopologyCategories[:i], c), field, "name each once", "category %q is named twice", c)
	}
	bad.when(len(p.TopologyCategories) > 5, field, "name at most 5", "%d categories", len(p.TopologyCategories))
	bad.when(vcenters > maxCSIVCenters, "spec.storageProvider.vsphereCloudConfigs", "name at most 5 vCenters", "%d vCenters", vcenters)
	if vcenters > 1 && !s.since("3.0.0") {
		bad = append(bad, fault.Errorf(fault.Incompatible, "configure", s.name(), "name one vCenter only, or use CSI 3.0 or later",
			"%d vCenters: CSI before 3.0 has one", vcenters))
	}
	bad.when(vcenters > 1 && len(p.TopologyCategories) == 0, field,
		"name the tag categories that tell the vCenters' nodes apart", "several vCenters need topology categories")
	return strings.Join(p.TopologyCategories, ","), fault.Join(bad...)
}

// QualifiedAccount reports whether CSI from 3.1 on accepts a user name: name@domain or domain\name,
// with no underscore in the domain (isValidvCenterUsernameWithDomain in its pkg/common/config/config.go).
func QualifiedAccount(user string) bool { return domainUser.MatchString(user) }

var domainUser = regexp.MustCompile(`^([A-Za-z0-9.-]+\\[A-Za-z0-9._-]+|[A-Za-z0-9._-]+@[A-Za-z0-9.-]+)$`)

func checkUsers(s *source, vcenters []vcenter) error {
	if !s.since("3.1.0") {
		return nil
	}
	var bad problems
	for _, v := range vcenters {
		bad.when(!QualifiedAccount(v.username), v.config(),
			`write the user name in the Secret as user@domain or domain\user: letters, digits, . and -, and _ before the @`,
			"CSI from 3.1 on needs a user name with a domain")
	}
	return fault.Join(bad...)
}

func checkDistribution(d string) error {
	if len(d) > 128 || !onOneLine(d) {
		return badSpec("spec.storageProvider.clusterDistribution", "use at most 128 characters on one line", "%q cannot be a distribution's name", d)
	}
	return nil
}

func checkDatastores(files *v1alpha1.FileVolumes) error {
	if files == nil {
		return nil
	}
	var bad problems
	for _, u := range files.VsanDataStoreURLs {
		bad.when(strings.Contains(u, " ") || !isItem(u), "spec.storageProvider.fileVolumes.vsanDataStoreUrl",
			"list each datastore's URL, such as ds:///vmfs/volumes/vsan:…/, as an item", "%q is not a datastore URL", u)
	}
	return fault.Join(bad...)
}

func checkNetPermissions(files *v1alpha1.FileVolumes) error {
	if files == nil {
		return nil
	}
	const field = "spec.storageProvider.fileVolumes.netPermissions"
	var bad problems
	for i, n := range files.NetPermissions {
		bad.when(!slices.Contains([]string{"", "READ_WRITE", "READ_ONLY", "NO_ACCESS"}, n.Permissions), field,
			"use READ_WRITE, READ_ONLY or NO_ACCESS", "permissions %q", n.Permissions)
		bad.when(!addresses(n.IPs), field, "use an address, a subnet such as 10.0.0.0/24, a range FIRST-LAST, or *", "ips %q", n.IPs)
		same := func(o v1alpha1.NetPermission) bool { return o.IPs == n.IPs }
		bad.when(slices.ContainsFunc(files.NetPermissions[:i], same), field, "give one rule for each", "two rules for ips %q", n.IPs)
	}
	return fault.Join(bad...)
}

func addresses(s string) bool {
	if s == "" || s == "*" {
		return true
	}
	if _, err := netip.ParsePrefix(s); err == nil {
		return true
	}
	from, to, isRange := strings.Cut(s, "-")
	_, err := netip.ParseAddr(from)
	if isRange && err == nil {
		_, err = netip.ParseAddr(to)
	}
	return err == nil
}

func netPermissions(w *ini, files *v1alpha1.FileVolumes) {
	if files == nil {
		return
	}
	for i, n := range files.NetPermissions {
		w.section("NetPermissions", fmt.Sprint(i+1))
		w.set("ips", cmp.Or(n.IPs, "*"))
		w.set("permissions", cmp.Or(n.Permissions, "READ_WRITE"))
		w.set("rootsquash", fmt.Sprint(n.RootSquash))
	}
}
