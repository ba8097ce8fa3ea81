package matrix

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// ImportOptions are what the predecessor's file does not say.
type ImportOptions struct {
	Serial          int64
	Issued, Expires time.Time
	// Known is a document whose knowledge of a release completes the import.
	Known *Document
	// File returns the bytes of a manifest, or nil where it has none, and where it looks for it, for hints.
	File func(id ReleaseID, name string) (data []byte, place string, err error)
}

// ImportLegacy reads the compatibility matrix of the former operator, a JSON object
// of drivers (CSI, CPI), versions and, for each, vSphere {min, max}, k8s {min, max}
// or {skewVersion}, isCPIRequired and deploymentPath, a list of addresses.
//
// That format has no sizes and no sha256 sums, so a document cannot be made of it
// alone. For each address they come from Known where it lists that address, else
// from the bytes that File has; what neither knows is a problem, and all problems
// are reported together, with file, line and key.
//
// For a release that Known lists too, its state, image overrides, notes and the
// snapshot-controller that it qualifies are taken over, which the old format could
// not express. Ranges and the need of a CPI always come from the file. Remarks say
// what was added.
func ImportLegacy(name string, data []byte, options ImportOptions) (doc *Document, remarks []string, err error) {
	im := &legacyImport{reader: &reader{name: name}, options: options}
	root := im.root(data)
	if root == nil {
		return nil, nil, im.err()
	}
	doc = im.document(root)
	if err := im.err(); err != nil {
		return nil, nil, err
	}
	return im.checked(doc)
}

type legacyImport struct {
	*reader
	options ImportOptions
	remarks []string
}

// root reads the JSON as the YAML that it also is, which keeps lines and finds keys
// that are given twice.
func (im *legacyImport) root(data []byte) *yaml.Node {
	if len(data) <= MaxSize {
		var raw json.RawMessage
		var bad *json.SyntaxError
		if err := json.Unmarshal(data, &raw); errors.As(err, &bad) {
			at := min(int(bad.Offset), len(data))
			im.problem(1+bytes.Count(data[:at], []byte("\n")), "", "is not JSON: "+bad.Error(), "give the matrix file of the former operator")
			return nil
		}
	}
	return im.tree(data)
}

func (im *legacyImport) document(root *yaml.Node) *Document {
	doc := &Document{
		Serial: im.options.Serial, Issued: im.options.Issued, Expires: im.options.Expires,
		Aliases: im.options.Known.Aliases,
	}
	o := im.object(root, "", "CSI", "CPI")
	for _, key := range []string{"CPI", "CSI"} {
		n := o.fields[key]
		switch {
		case n == nil:
		case n.Kind != yaml.MappingNode:
			o.fail(key, "is not a mapping of versions", "give it versions as keys")
		default:
			doc.Releases = append(doc.Releases, im.versions(map[string]Driver{"CPI": CPI, "CSI": CSI}[key], n, key)...)
		}
	}
	if len(doc.Releases) == 0 && len(im.problems) == 0 {
		im.problem(root.Line, "", "lists no release", "give the matrix file of the former operator")
	}
	im.snapshots(doc)
	return doc
}

func (im *legacyImport) versions(d Driver, n *yaml.Node, at string) []Release {
	var out []Release
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		place := join(at, short(key.Value))
		id := ReleaseID{Driver: d, Version: scalar(im.reader, key, place, releaseVersion)}
		if id.Version.IsZero() {
			continue
		}
		if first, twice := lines[id.String()]; twice {
			im.problem(key.Line, place, fmt.Sprintf("is given already in line %d", first), "remove one of the two")
			continue
		}
		lines[id.String()] = key.Line
		out = append(out, im.release(id, im.object(n.Content[i+1], place, "vSphere", "k8s", "isCPIRequired", "deploymentPath")))
	}
	return out
}

func (im *legacyImport) release(id ReleaseID, o object) Release {
	basis := "imported from " + path.Base(im.name)
	r := Release{ReleaseID: id, State: Current}
	v := o.object("vSphere", required, "min", "max")
	r.VSphere = VSphereRange{Min: field(v, "min", required, ParseVSphere), Max: field(v, "max", optional, ParseCeiling), Basis: basis}
	if !r.VSphere.Min.IsZero() && !r.VSphere.Max.Covers(r.VSphere.Min) {
		v.fail("max", fmt.Sprintf("%s is below min %s", r.VSphere.Max, r.VSphere.Min), "swap the two")
	}
	r.Kubernetes = im.legacyKubernetes(id, o, basis)
	needsCPI := field(o, "isCPIRequired", optional, boolean)
	if id.Driver == CSI {
		r.Requires = []Requirement{{Driver: CPI, Optional: !needsCPI}}
	}
	for _, item := range o.list("deploymentPath", required, maxElements) {
		if m := im.manifest(id, item); m.Name != "" {
			if slices.ContainsFunc(r.Manifests, func(n Manifest) bool { return n.Name == m.Name }) {
				im.problem(item.node.Line, item.path, fmt.Sprintf("a second file named %s", m.Name), "remove one of the two")
			}
			r.Manifests = append(r.Manifests, m)
		}
	}
	return im.enrich(r)
}

func (im *legacyImport) legacyKubernetes(id ReleaseID, o object, basis string) KubernetesRange {
	k := o.object("k8s", required, "min", "max", "skewVersion")
	out := KubernetesRange{Basis: basis}
	if k.fields["skewVersion"] != nil {
		out.Min = field(k, "skewVersion", required, legacyMinor)
		out.Max = out.Min
	} else {
		out.Min, out.Max = field(k, "min", required, legacyMinor), field(k, "max", required, legacyMinor)
	}
	switch own := id.Version.Minor(); {
	case out.Min.IsZero() || out.Max.IsZero():
	case out.Max.Compare(out.Min) < 0:
		k.fail("max", fmt.Sprintf("%s is below min %s", out.Max, out.Min), "swap the two")
	case id.Driver == CPI && (out.Min != own || out.Max != own):
		o.fail("k8s", fmt.Sprintf("is %s, and a cpi serves the Kubernetes minor of its own version alone", out), fmt.Sprintf("set skewVersion to %s", own))
	}
	return out
}

func legacyMinor(s string) (Minor, error) {
	v, err := ParseKubernetes(s)
	return v.Minor(), err
}

// manifest finds what the file does not say of an address.
func (im *legacyImport) manifest(id ReleaseID, item item) Manifest {
	link := scalar(im.reader, item.node, item.path, address)
	u, err := url.Parse(link)
	if link == "" || err != nil {
		return Manifest{}
	}
	m := Manifest{Name: path.Base(u.Path), URL: link}
	if _, err := fileName(m.Name); err != nil {
		im.problem(item.node.Line, item.path, err.Error(), "give the address of one file")
		return Manifest{}
	}
	if m.Name == "validatingwebhook.yaml" {
		m.Part = PartWebhook
	}
	for _, r := range im.options.Known.Releases {
		for _, known := range r.Manifests {
			if known.URL == link {
				m.Size, m.SHA256 = known.Size, known.SHA256
				return m
			}
		}
	}
	return im.fromFile(id, m, item)
}

func (im *legacyImport) fromFile(id ReleaseID, m Manifest, item item) Manifest {
	data, place, err := im.options.File(id, m.Name)
	switch {
	case err != nil:
		im.problem(item.node.Line, item.path, err.Error(), "correct the manifest folder")
	case len(data) == 0:
		why := fmt.Sprintf("size and sha256 of %s are not known", m.URL)
		im.problem(item.node.Line, item.path, why, "download it to "+place)
	case len(data) > MaxManifestSize:
		im.problem(item.node.Line, item.path, fmt.Sprintf("%s is larger than %d bytes", m.Name, MaxManifestSize), "give the manifest itself")
	default:
		sum := sha256.Sum256(data)
		m.Size, m.SHA256 = int64(len(data)), hex.EncodeToString(sum[:])
	}
	return m
}

// enrich adds what the known document says of the same release.
func (im *legacyImport) enrich(r Release) Release {
	known, ok := im.options.Known.Release(r.ReleaseID)
	if !ok {
		im.remark("%s is not in the matrix that completes the import: its state is set to current", r.ReleaseID)
		return r
	}
	r.State, r.Reason, r.Images, r.Notes = known.State, known.Reason, known.Images, known.Notes
	if r.State == Withdrawn {
		im.remark("%s is withdrawn, and will not be chosen: %s", r.ReleaseID, r.Reason)
	}
	for _, need := range known.Requires {
		if need.Driver == SnapshotController {
			r.Requires = append(r.Requires, need)
			im.remark("%s requires %s, which was added", r.ReleaseID, need)
		}
	}
	return r
}

// snapshots adds the snapshot-controllers that releases were found to require.
func (im *legacyImport) snapshots(doc *Document) {
	for _, r := range doc.Releases {
		for _, need := range r.Requires {
			known, ok := im.options.Known.Release(ReleaseID{need.Driver, need.Version})
			if _, listed := doc.Release(known.ReleaseID); ok && !listed {
				doc.Releases = append(doc.Releases, known)
			}
		}
	}
	if !slices.ContainsFunc(doc.Releases, func(r Release) bool { return r.Driver == CPI }) {
		dropCPI(doc)
	}
}

// dropCPI removes the recommendation of a CPI from a document that lists none. A
// need stays, and is a problem.
func dropCPI(doc *Document) {
	for i := range doc.Releases {
		doc.Releases[i].Requires = slices.DeleteFunc(doc.Releases[i].Requires, func(n Requirement) bool { return n.Driver == CPI && n.Optional })
	}
}

func (im *legacyImport) remark(format string, args ...any) {
	im.remarks = append(im.remarks, fmt.Sprintf(format, args...))
}

// checked holds the result to everything that a document has to be.
func (im *legacyImport) checked(doc *Document) (*Document, []string, error) {
	written, err := doc.Marshal()
	if err != nil {
		return nil, nil, err
	}
	out, err := Parse(im.name+" as imported", written)
	if err != nil {
		return nil, nil, err
	}
	return out, im.remarks, nil
}
