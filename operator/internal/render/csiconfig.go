package render

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// csiData returns the content of the driver's Secret: its configuration, and the CA files that it names.
func (r *renderer) csiData(s *source, p *v1alpha1.StorageProvider, vcenters []vcenter) (map[string][]byte, error) {
	id, idErr := r.clusterID(s, p)
	countErr := checkVCenterCount(s, len(vcenters))
	common, trustErr := commonTrust(s, vcenters)
	if err := fault.Join(idErr, countErr, trustErr, checkUsers(s, vcenters)); err != nil {
		return nil, err
	}
	w := &ini{}
	w.section("Global", "")
	w.setUnlessEmpty("cluster-id", id)
	w.setUnlessEmpty("cluster-distribution", p.ClusterDistribution)
	w.setUnlessEmpty("ca-file", common.caFile())
	w.setUnlessEmpty("thumbprint", common.Thumbprint)
	w.setUnlessEmpty("query-limit", number(p.QueryLimit))
	w.setUnlessEmpty("list-volume-threshold", number(p.ListVolumeThreshold))
	for _, v := range vcenters {
		r.csiVCenter(w, s, v, p.FileVolumes)
	}
	netPermissions(w, p.FileVolumes)
	snapshotLimits(w, p.Snapshots)
	if len(p.TopologyCategories) > 0 {
		w.section("Labels", "")
		w.set("topology-categories", strings.Join(p.TopologyCategories, ","))
	}
	data := map[string][]byte{CSIConfigKey: []byte(w.String())}
	addCAs(data, vcenters)
	return data, nil
}

func (r *renderer) csiVCenter(w *ini, s *source, v vcenter, files *v1alpha1.FileVolumes) {
	w.section("VirtualCenter", v.Server)
	w.set("user", v.Credentials.Username)
	w.set("password", v.Credentials.Password)
	w.set("port", number(v.Port))
	w.set("insecure-flag", fmt.Sprint(v.Insecure))
	w.setUnlessEmpty("datacenters", strings.Join(v.Datacenters, ","))
	if s.since(perVCenterTrust) {
		w.setUnlessEmpty("ca-file", v.caFile())
		w.setUnlessEmpty("thumbprint", v.Thumbprint)
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

// perVCenterTrust is the first release in which each vCenter has its own ca-file and thumbprint; earlier ones have
// one pair for all.
const perVCenterTrust = "3.3.0"

// commonTrust returns the vCenter with the ca-file and thumbprint of section Global, an empty one for none.
func commonTrust(s *source, vcenters []vcenter) (first vcenter, err error) {
	for _, v := range vcenters {
		switch {
		case s.since(perVCenterTrust), v.Insecure: // its own section says so
		case first.name == "":
			first = v
		case string(v.CA) != string(first.CA) || v.Thumbprint != first.Thumbprint:
			return first, fault.Errorf(fault.Incompatible, "configure", s.name(),
				"give all of them one CA and no thumbprint, or use CSI 3.3 or later",
				"VsphereCloudConfigs %s and %s have different CAs or thumbprints: CSI before 3.3 has one for all vCenters", first.name, v.name)
		}
	}
	return first, nil
}

// clusterID returns the cluster-id for the configuration; "" omits it. CNS tells clusters' volumes apart by the id,
// so an existing one stays. CSI 3.0 and later stop if the configuration repeats their generated id. Without an id,
// CSI before 3.0 gets the UID of kube-system; later ones generate one.
func (r *renderer) clusterID(s *source, p *v1alpha1.StorageProvider) (string, error) {
	c, generates := r.in.Cluster, s.since("3.0.0")
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

// warnOfSharedID adds a note if the id is a vCenter's address. The earlier operator used it for all clusters of a
// site.
func (r *renderer) warnOfSharedID(id string) {
	for _, name := range StorageVCenters(r.in.Spec.StorageProvider) {
		if v, ok := r.in.VCenters[name]; ok && v1alpha1.CanonicalHost(v.Server) == v1alpha1.CanonicalHost(id) {
			r.note("the storage driver's cluster id is the vCenter's address, %s: another cluster with the same id would corrupt the metadata of both", id)
		}
	}
}

func checkVCenterCount(s *source, vcenters int) error {
	if vcenters < 2 || s.since("3.0.0") {
		return nil
	}
	return fault.Errorf(fault.Incompatible, "configure", s.name(), "name one vCenter only, or use CSI 3.0 or later",
		"%d vCenters: CSI before 3.0 has one", vcenters)
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
		bad.when(!QualifiedAccount(v.Credentials.Username), v.config(),
			`write the user name in the Secret as user@domain or domain\user: letters, digits, . and -, and _ before the @`,
			"CSI from 3.1 on needs a user name with a domain")
	}
	return fault.Join(bad...)
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

func number(n int32) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func snapshotLimits(w *ini, l *v1alpha1.SnapshotLimits) {
	if l == nil || *l == (v1alpha1.SnapshotLimits{}) {
		return
	}
	w.section("Snapshot", "")
	w.setUnlessEmpty("global-max-snapshots-per-block-volume", number(l.MaxPerVolume))
	w.setUnlessEmpty("granular-max-snapshots-per-block-volume-vsan", number(l.MaxPerVolumeVSAN))
	w.setUnlessEmpty("granular-max-snapshots-per-block-volume-vvol", number(l.MaxPerVolumeVVOL))
}

// ini writes the storage driver's dialect of INI (gopkg.in/gcfg.v1). Section names and values are always quoted,
// because an unquoted # or ; starts a comment. Inside quotes only \\ \" \n \t are escapes; the reader drops carriage
// returns.
type ini struct{ strings.Builder }

func (w *ini) section(kind, name string) {
	if w.Len() > 0 {
		w.WriteByte('\n')
	}
	if name == "" {
		fmt.Fprintf(w, "[%s]\n", kind)
		return
	}
	fmt.Fprintf(w, "[%s %s]\n", kind, iniQuote(name))
}

func (w *ini) set(key, value string) { fmt.Fprintf(w, "%s = %s\n", key, iniQuote(value)) }

func (w *ini) setUnlessEmpty(key, value string) {
	if value != "" {
		w.set(key, value)
	}
}

var iniEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`)

func iniQuote(s string) string { return `"` + iniEscapes.Replace(s) + `"` }

// iniCan returns why a value cannot be written, or nil.
func iniCan(s string) error {
	switch {
	case !utf8.ValidString(s):
		return errors.New("is not UTF-8 text")
	case strings.ContainsRune(s, 0):
		return errors.New("has a NUL character")
	case strings.ContainsRune(s, '\r'):
		return errors.New("has a carriage return")
	}
	return nil
}

// ConfiguredClusterID returns the cluster-id of section Global in a csi-vsphere.conf, whoever wrote it, or "". As in
// the driver, case does not matter and the last one counts.
func ConfiguredClusterID(conf []byte) string {
	id := ""
	for _, s := range readINI(conf) {
		if s.section == "global" && s.key == "clusterid" {
			id = s.value
		}
	}
	return id
}

// iniUnquote reads a value: quotes may start and end anywhere, and a comment outside of them ends it.
func iniUnquote(s string) string {
	var out strings.Builder
	quoted, kept := false, 0
	s = strings.TrimLeft(s, " \t")
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			out.WriteByte(iniUnescape(s[i]))
			kept = out.Len()
		case c == '"':
			quoted = !quoted
			kept = out.Len()
		case !quoted && (c == '#' || c == ';'):
			return out.String()[:kept]
		default:
			out.WriteByte(c)
			if quoted || (c != ' ' && c != '\t' && c != '\r') {
				kept = out.Len()
			}
		}
	}
	return out.String()[:kept]
}

func iniUnescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	}
	return c
}

// Passwords returns the passwords, and the tokens of a session manager, in the data of a drivers' Secret. It knows both
// forms that the drivers read: a settings file, and one key each.
func Passwords(data map[string][]byte) []string {
	const word = "password"
	var all []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if strings.Contains(strings.ToLower(key), word) {
			all = append(all, strings.TrimRight(string(data[key]), "\r\n")) // messages may have it without its line end
			continue
		}
		for _, s := range readSettings(data[key]) {
			if s.key == word || s.key == "vcsessionmanagertoken" {
				all = append(all, s.value)
			}
		}
	}
	return slices.DeleteFunc(all, func(p string) bool { return p == "" })
}
