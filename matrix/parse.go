package matrix

import (
	"bytes"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
)

const (
	// MaxManifestSize bounds one manifest file, in bytes. The largest known, Antrea's, has 240 kB.
	MaxManifestSize = 8 << 20

	maxSerial = 1 << 53 // the largest in JSON
	maxMinors = 100     // of a Kubernetes range, which callers often walk
)

// documentFile is the form of a document; see the package comment.
type documentFile struct {
	APIVersion string         `yaml:"apiVersion"`
	Kind       string         `yaml:"kind"`
	Serial     int64          `yaml:"serial"`
	Issued     time.Time      `yaml:"issued"`
	Expires    time.Time      `yaml:"expires"`
	Aliases    []VSphereAlias `yaml:"vsphereAliases,omitempty"`
	Releases   []Release      `yaml:"releases"`
	Services   []serviceFile  `yaml:"services,omitempty"`
	Needs      []needFile     `yaml:"needs,omitempty"`
}

// serviceFile has a service instead of a driver.
type serviceFile struct {
	Service Driver   `yaml:"service"`
	Version Version  `yaml:"version"`
	State   State    `yaml:"state"`
	Reason  string   `yaml:"reason,omitempty"`
	Image   string   `yaml:"image"`
	Basis   string   `yaml:"basis"`
	Notes   []string `yaml:"notes,omitempty"`
}

// needFile has the releases on one line.
type needFile struct {
	Object string   `yaml:"object"`
	Of     []string `yaml:"of,flow"`
	Has    []string `yaml:"has,omitempty"`
}

var format = strictyaml.Format{
	Op: "parse", APIVersion: APIVersion, Kind: Kind, Limit: MaxSize,
	Hint: "correct it: `vdo-bundle matrix export` prints a matrix that is right",
}

// Parse reads a document; name is the file's name, for errors. It reports all problems of the form
// or, if none, of the content. They are faults of reason InvalidInput in the order of their lines.
func Parse(name string, data []byte) (*Document, error) {
	var f documentFile
	if err := format.Load(name, data, &f, f.check); err != nil {
		return nil, err
	}
	doc := &Document{
		Serial: f.Serial, Issued: f.Issued.UTC(), Expires: f.Expires.UTC(), Aliases: f.Aliases, Releases: f.Releases,
	}
	for _, s := range f.Services {
		id := ReleaseID{s.Service, s.Version}
		doc.Services = append(doc.Services, ServiceRelease{id, s.State, s.Reason, s.Image, s.Basis, s.Notes})
	}
	for _, n := range f.Needs {
		need := Need{Object: n.Object, Has: n.Has}
		for _, of := range n.Of {
			id, err := ParseReleaseID(of)
			if err != nil {
				return nil, err // not reached: check parsed it
			}
			need.Of = append(need.Of, id)
		}
		slices.SortFunc(need.Of, ReleaseID.Compare)
		slices.Sort(need.Has)
		doc.Needs = append(doc.Needs, need)
	}
	slices.SortFunc(doc.Releases, func(a, b Release) int { return a.ReleaseID.Compare(b.ReleaseID) })
	slices.SortFunc(doc.Services, func(a, b ServiceRelease) int { return a.ReleaseID.Compare(b.ReleaseID) })
	return doc, nil
}

// Marshal returns the canonical form of the document: releases sorted by driver and version, keys
// in the order of the specification, without empty optional keys.
func (d *Document) Marshal() ([]byte, error) {
	f := documentFile{
		APIVersion: APIVersion, Kind: Kind, Serial: d.Serial, Issued: d.Issued.UTC(), Expires: d.Expires.UTC(),
		Aliases: d.Aliases, Releases: slices.Clone(d.Releases),
	}
	slices.SortStableFunc(f.Releases, func(a, b Release) int { return a.ReleaseID.Compare(b.ReleaseID) })
	services := slices.Clone(d.Services)
	slices.SortStableFunc(services, func(a, b ServiceRelease) int { return a.ReleaseID.Compare(b.ReleaseID) })
	for _, s := range services {
		f.Services = append(f.Services, serviceFile{s.Driver, s.Version, s.State, s.Reason, s.Image, s.Basis, s.Notes})
	}
	for _, n := range d.Needs {
		f.Needs = append(f.Needs, needFile{n.Object, each(n.Of, ReleaseID.String), n.Has})
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(f); err != nil {
		return nil, fmt.Errorf("write matrix: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("write matrix: %w", err)
	}
	return out.Bytes(), nil
}

// once refuses repeated values.
type once map[string]bool

func (o once) look(c *strictyaml.Check, key, what string) {
	c.Require(!o[what], key, "%s is listed twice", what)
	o[what] = true
}

// check adds the problems of a document whose form is valid.
func (f *documentFile) check(c *strictyaml.Check) {
	c.Require(f.Serial > 0 && f.Serial <= maxSerial, "serial",
		"%d is not a whole number from 1 to %d", f.Serial, maxSerial)
	c.Require(f.Expires.After(f.Issued), "expires", "is not after issued")
	aliases, releases, services, drivers := once{}, once{}, once{}, map[string]bool{}
	for i, a := range f.Aliases {
		what := fmt.Sprintf("%s from build %d", a.Reports, a.FromBuild)
		aliases.look(c, fmt.Sprintf("vsphereAliases[%d].reports", i), what)
	}
	c.Require(len(f.Releases) > 0, "releases", "there is none")
	for i, r := range f.Releases {
		key := fmt.Sprintf("releases[%d]", i)
		releases.look(c, key, r.ReleaseID.String())
		drivers[string(r.Driver)] = true
		r.check(c, key)
	}
	for i, r := range f.Releases {
		for j, need := range r.Requires {
			listed := releases[need.String()] || drivers[need.String()]
			c.Require(listed, fmt.Sprintf("releases[%d].requires[%d]", i, j), "%s is not listed", need)
		}
	}
	for i, s := range f.Services {
		key := fmt.Sprintf("services[%d]", i)
		services.look(c, key, ReleaseID{s.Service, s.Version}.String())
		_, err := ParseService(string(s.Service))
		good(c, key+".service", err)
		checkState(c, key, s.Version, s.State, s.Reason)
		good(c, key+".image", pinnedImage(s.Image))
	}
	f.checkNeeds(c, releases)
}

// good adds the problem of a value, if it has one.
func good(c *strictyaml.Check, key string, err error) {
	if err != nil {
		c.Add(key, "%s", err)
	}
}

func (f *documentFile) checkNeeds(c *strictyaml.Check, releases once) {
	has := once{}
	for i, n := range f.Needs {
		key := fmt.Sprintf("needs[%d].of", i)
		c.Require(len(n.Of) > 0, key, "there is none")
		for j, of := range n.Of {
			key := fmt.Sprintf("%s[%d]", key, j)
			id, err := ParseReleaseID(of)
			good(c, key, err)
			c.Require(err != nil || releases[id.String()], key, "%s is not listed under releases", id)
			has.look(c, key, n.Object+" of "+id.String())
		}
	}
}

func (r Release) check(c *strictyaml.Check, key string) {
	_, err := ParseDriver(string(r.Driver))
	good(c, key+".driver", err)
	checkState(c, key, r.Version, r.State, r.Reason)
	r.checkRanges(c, key)
	r.checkRequires(c, key+".requires")
	c.Require(len(r.Manifests) > 0, key+".manifests", "there is none")
	names, replaced := once{}, once{}
	for i, m := range r.Manifests {
		key := fmt.Sprintf("%s.manifests[%d]", key, i)
		names.look(c, key+".name", m.Name)
		m.check(c, key)
	}
	for i, image := range r.Images {
		key := fmt.Sprintf("%s.images[%d]", key, i)
		replaced.look(c, key+".from", image.From)
		c.Require(imageReference.MatchString(image.From), key+".from", "%.128q is not an image reference", image.From)
		good(c, key+".to", pinnedImage(image.To))
	}
}

// checkState requires the reason of a state that needs one, and a version without build metadata.
func checkState(c *strictyaml.Check, key string, v Version, s State, reason string) {
	c.Require(v.v.Metadata() == "", key+".version", "%q has build metadata, which does not tell releases apart", v)
	if !s.Valid() {
		good(c, key+".state", unknown("state", string(s), States()))
	}
	c.Require(reason != "" || (s != Deprecated && s != Withdrawn), key+".reason",
		"is missing, and a release is not %s without one", s)
}

func (r Release) checkRanges(c *strictyaml.Check, key string) {
	k, own := r.Kubernetes, r.Version.Minor()
	switch at := key + ".kubernetes.max"; {
	case k.Max.IsZero():
		c.Require(r.Driver == CNI || r.Driver == SnapshotController, at, "is missing")
	case k.Max.Compare(k.Min) < 0:
		c.Add(at, "%s is below min %s", k.Max, k.Min)
	case k.Max.Major != k.Min.Major || k.Max.Minor-k.Min.Minor >= maxMinors:
		c.Add(at, "%s is more than %d minors above min %s", k.Max, maxMinors, k.Min)
	case r.Driver == CPI && (k.Min != own || k.Max != own):
		c.Add(key+".kubernetes.min",
			"the range is %s, and a cpi serves the Kubernetes minor of its own version alone", k)
	}
	v := r.VSphere
	c.Require(!v.Min.IsZero() || (r.Driver != CPI && r.Driver != CSI), key+".vsphere", "is missing")
	c.Require(v.Max.Covers(v.Min), key+".vsphere.max", "%s is below min %s", v.Max, v.Min)
}

func (r Release) checkRequires(c *strictyaml.Check, key string) {
	drivers := once{}
	for i, need := range r.Requires {
		key := fmt.Sprintf("%s[%d].driver", key, i)
		c.Require(r.Driver == CSI, key, "a release of %s requires no other driver: only csi does", r.Driver)
		c.Require(need.Driver == CPI || need.Driver == SnapshotController, key,
			"csi requires cpi and snapshot-controller alone, not %.128q", need.Driver)
		drivers.look(c, key, string(need.Driver))
	}
}

var (
	fileNameText   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,200}$`)
	sha256Hex      = regexp.MustCompile(`^[0-9a-f]{64}$`)
	imageReference = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,500}$`)
)

func (m Manifest) check(c *strictyaml.Check, key string) {
	c.Require(fileNameText.MatchString(m.Name), key+".name", "%.128q is not a base name of a file: "+
		"use letters, digits, dots, dashes and underscores", m.Name)
	c.Require(m.Part == "" || m.Part == PartWebhook, key+".part", "%.128q is not %s", m.Part, PartWebhook)
	u, err := url.Parse(m.URL)
	c.Require(err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil &&
		u.Fragment == "" && len(m.URL) <= 2048, key+".url", "it is not an http or https address of a file")
	c.Require(m.Size > 0 && m.Size <= MaxManifestSize, key+".size",
		"%d is not a whole number from 1 to %d", m.Size, MaxManifestSize)
	c.Require(sha256Hex.MatchString(m.SHA256), key+".sha256", "%.128q is not a sha256: "+
		"it has 64 hexadecimal digits in lower case, as sha256sum prints them", m.SHA256)
}

// pinnedImage refuses a reference without a fixed tag or digest, which an override must have.
func pinnedImage(s string) error {
	if !imageReference.MatchString(s) {
		return fmt.Errorf("%.128q is not an image reference", s)
	}
	_, tag, _ := strings.Cut(s[strings.LastIndex(s, "/")+1:], ":")
	if !strings.Contains(s, "@") && (tag == "" || tag == "latest") {
		return fmt.Errorf("%.128q has neither a fixed tag nor a digest", s)
	}
	return nil
}

// unknown returns the error of a word outside a fixed set.
func unknown[T ~string](what, got string, known []T) error {
	words := each(known, func(k T) string { return string(k) })
	return fmt.Errorf("%.128q is not a %s: it is one of %s", got, what, strings.Join(words, ", "))
}
