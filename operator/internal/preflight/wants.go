package preflight

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// Use is a vCenter of a configuration, by the name of its VsphereCloudConfig, and the drivers that use it.
type Use struct {
	Name     string
	CPI, CSI bool
}

// And returns the use of one vCenter under two names.
func (u Use) And(o Use) Use { return Use{CPI: u.CPI || o.CPI, CSI: u.CSI || o.CSI} }

// WantsOf returns what a configuration requests, and its vCenters, sorted by name. A driver with a disabled policy
// requests nothing.
func WantsOf(spec *v1alpha1.VDOConfigSpec) (Wants, []Use) {
	cloud, storage := render.CloudVCenters(spec.CloudProvider), render.StorageVCenters(spec.StorageProvider)
	w := Wants{CPI: len(cloud) > 0 && !disabled(spec, matrix.CPI), CSI: len(storage) > 0 && !disabled(spec, matrix.CSI)}
	if c := spec.CloudProvider; c != nil {
		topology := ptr.Deref(c.Topology, v1alpha1.Topology{})
		w.Zone, w.Region = topology.Zone, topology.Region
	}
	if p := spec.StorageProvider; p != nil {
		w.Snapshots = len(p.SnapshotClasses) > 0
		w.Categories, w.ClusterID, w.Encryption = p.TopologyCategories, p.ClusterID, p.Encryption
		isShared := func(c v1alpha1.StorageClass) bool { return c.FSType == fileVolumes }
		w.FileVolumes = p.FileVolumes != nil || slices.ContainsFunc(p.StorageClasses, isShared)
	}
	w.CSIVersion = strings.TrimPrefix(spec.PolicyOf(string(matrix.CSI)).Version, "v")
	names := slices.Concat(cloud, storage)
	slices.Sort(names)
	var uses []Use
	for _, n := range slices.Compact(names) {
		uses = append(uses, Use{Name: n, CPI: w.CPI && slices.Contains(cloud, n), CSI: w.CSI && slices.Contains(storage, n)})
	}
	return w, uses
}

func disabled(spec *v1alpha1.VDOConfigSpec, d matrix.Driver) bool {
	return spec.PolicyOf(string(d)).Policy == "disabled"
}

// fileVolumes is the file system of a StorageClass for file volumes.
const fileVolumes = "nfs4"

// FeaturesAt returns the features for which the account of one vCenter needs privileges. StorageClasses of the cluster
// that VDO did not make count too.
func (w Wants) FeaturesAt(u Use, c *Cluster) privileges.Features {
	isShared := func(c StorageClass) bool { return c.FSType == fileVolumes }
	return privileges.Features{Block: u.CSI, Topology: len(w.Categories) > 0, Encryption: u.CSI && w.Encryption,
		CPI: u.CPI, File: u.CSI && (w.FileVolumes || slices.ContainsFunc(c.StorageClasses, isShared))}
}

// Question identifies a check of a VDOConfig. A caller may get an earlier answer for the same ID.
type Question struct {
	Of types.NamespacedName // the VDOConfig
	// ID identifies the question: see [NewQuestion].
	ID   string
	Spec *v1alpha1.VDOConfigSpec
	// Pass is the last requested check, "" for none. Handled is the last one that the status' answer covers.
	Pass, Handled string
	// Known is when the status says that it was answered; zero if it does not. Gated is set if the answer blocked
	// something.
	Known time.Time
	Gated bool
}

// Location is the address of a vCenter, and whether it accepted its account.
type Location struct {
	Name, Where string
	Verified    bool `json:"Proven"` // has the earlier JSON name, since a status stores the hash
}

// Requested reports whether a requested check is not answered yet.
func (q *Question) Requested() bool { return q.Pass != "" && q.Pass != q.Handled }

// NewQuestion identifies a question by all configured inputs of its answer. Facts about vCenters and nodes are not
// part of it: the check reads them again at an interval.
func NewQuestion(of types.NamespacedName, spec *v1alpha1.VDOConfigSpec, places []Location) Question {
	wants, uses := WantsOf(spec)
	text, _ := json.Marshal(struct { //nolint:errchkjson // none of it can fail
		Wants    Wants
		Uses     []Use
		Places   []Location
		Excluded map[string]string
		Policy   *v1alpha1.PreflightPolicy
	}{wants, uses, places, spec.ExcludedNodes, spec.Preflight})
	sum := sha256.Sum256(text)
	return Question{Of: of, Spec: spec, ID: hex.EncodeToString(sum[:8])}
}

// Answer is the result of the checks.
type Answer struct {
	Question string // its ID
	Pass     string // the requested check when it began
	At       time.Time
	Results  []Result // without overrides of the configuration
}

// LastRetry is the longest time between checks while something is blocked. defaultInterval is the time otherwise, if
// spec.preflight does not set it.
const (
	LastRetry       = 10 * time.Minute
	defaultInterval = 30 * time.Minute
)

// Interval returns the time between checks while nothing is blocked.
func Interval(spec *v1alpha1.VDOConfigSpec) time.Duration {
	if p := spec.Preflight; p != nil && p.Interval.Duration > 0 {
		return p.Interval.Duration
	}
	return defaultInterval
}
