package matrix

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
)

// MaxManifestSize bounds one manifest file, in bytes. The largest known, Antrea's, has 240 kB.
const MaxManifestSize = 8 << 20

// maxReleases and maxElements bound the list of releases and every other list.
const (
	maxReleases = 5000
	maxElements = 200
	maxNeeds    = 20000
	maxLines    = 2000
)

// maxMinors bounds a Kubernetes range, which is often walked.
const maxMinors = 100

// Parse reads a document; name is the file's name, for errors. It reports all
// problems together, as faults of reason InvalidInput in the order of their lines.
func Parse(name string, data []byte) (*Document, error) {
	r := &reader{name: name}
	root := r.tree(data)
	if root == nil {
		return nil, r.err()
	}
	doc := r.document(root)
	if err := r.err(); err != nil {
		return nil, err
	}
	slices.SortFunc(doc.Releases, func(a, b Release) int { return a.ReleaseID.Compare(b.ReleaseID) })
	slices.SortFunc(doc.Services, func(a, b ServiceRelease) int { return a.ReleaseID.Compare(b.ReleaseID) })
	return doc, nil
}

// tree reads the YAML of one document and refuses what the format does without.
func (r *reader) tree(data []byte) *yaml.Node {
	root, err := strictyaml.Parse(data, MaxSize)
	if wrong, ok := errors.AsType[*strictyaml.Error](err); ok {
		r.problem(wrong.Line, "", wrong.Why, cmp.Or(wrong.Hint, "give a compatibility matrix, as `vdo-bundle matrix export` writes one"))
		return nil
	}
	if !r.plain(root, "", 1) {
		return nil
	}
	return root
}

// plain tells whether a tree has neither anchors nor tags and is not too deep.
func (r *reader) plain(n *yaml.Node, path string, depth int) bool {
	switch {
	case depth > MaxDepth:
		r.problem(n.Line, path, fmt.Sprintf("is nested more than %d levels deep", MaxDepth), "see the format's specification in package matrix")
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.problem(n.Line, path, "YAML anchors and aliases are not allowed", "write the value out")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		r.problem(n.Line, path, "YAML tags are not allowed", "remove "+n.Tag)
		return false
	}
	ok := true
	for i, child := range n.Content {
		if !r.plain(child, childPath(n, path, i), depth+1) {
			ok = false
		}
	}
	return ok
}

func childPath(n *yaml.Node, path string, i int) string {
	if n.Kind == yaml.SequenceNode {
		return index(path, i)
	}
	return join(path, short(n.Content[i-i%2].Value))
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// short cuts a text that is not ours to a length that fits into a message.
func short(s string) string {
	if r := []rune(s); len(r) > maxVersionText {
		return string(r[:maxVersionText]) + "…"
	}
	return s
}

func (r *reader) document(n *yaml.Node) *Document {
	o := r.object(n, "", "apiVersion", "kind", "serial", "issued", "expires", "vsphereAliases", "releases", "services", "needs")
	field(o, "apiVersion", required, exactly(APIVersion))
	field(o, "kind", required, exactly(Kind))
	doc := &Document{
		Serial:  field(o, "serial", required, positive[int64](1<<53)),
		Issued:  field(o, "issued", required, instant),
		Expires: field(o, "expires", required, instant),
	}
	if !doc.Issued.IsZero() && !doc.Expires.IsZero() && !doc.Expires.After(doc.Issued) {
		o.fail("expires", "is not after issued", "give the day until which the matrix may be relied on")
	}
	doc.Aliases = r.aliases(o)
	doc.Releases = r.releases(o)
	doc.Services = r.services(o)
	doc.Needs = r.needs(o, doc.Releases)
	return doc
}

func (r *reader) aliases(o object) []VSphereAlias {
	var out []VSphereAlias
	for _, item := range o.list("vsphereAliases", optional, maxElements) {
		a := r.object(item.node, item.path, "reports", "fromBuild", "means", "basis")
		alias := VSphereAlias{
			Reports:   field(a, "reports", required, ParseVersion),
			FromBuild: field(a, "fromBuild", optional, positive[uint64](1<<53)),
			Means:     field(a, "means", required, ParseVersion),
			Basis:     field(a, "basis", required, line),
		}
		same := func(b VSphereAlias) bool { return b.Reports.Equal(alias.Reports) && b.FromBuild == alias.FromBuild }
		if slices.ContainsFunc(out, same) {
			a.fail("reports", "is listed twice with the same fromBuild", "remove one of the two")
		}
		out = append(out, alias)
	}
	return out
}

func (r *reader) releases(o object) []Release {
	items := o.list("releases", required, maxReleases)
	out := make([]Release, 0, len(items))
	lines := map[string]int{}
	for _, item := range items {
		release := r.release(item)
		out = append(out, release)
		r.once(lines, item, release.ReleaseID)
	}
	r.met(out)
	return out
}

// once refuses what is listed twice; lines are of what was listed so far.
func (r *reader) once(lines map[string]int, item item, id ReleaseID) {
	first, twice := lines[id.String()]
	switch {
	case id.Driver == "" || id.Version.IsZero():
	case twice:
		why := fmt.Sprintf("%s is listed already in line %d", id, first)
		r.problem(item.node.Line, item.path, why, "remove one of the two")
	default:
		lines[id.String()] = item.node.Line
	}
}

// needs reads what releases need of a cluster.
func (r *reader) needs(o object, releases []Release) []Need {
	known := map[string]bool{}
	for _, release := range releases {
		known[release.ReleaseID.String()] = true
	}
	var out []Need
	seen := map[string]bool{} // object and release
	for _, item := range o.list("needs", optional, maxNeeds) {
		n := r.object(item.node, item.path, "object", "of", "has")
		need := Need{Object: field(n, "object", required, line)}
		for _, of := range n.list("of", required, maxReleases) {
			id := scalar(r, of.node, of.path, ParseReleaseID)
			key := need.Object + "\x00" + id.String()
			switch {
			case id.Driver == "":
			case !known[id.String()]:
				r.problem(of.node.Line, of.path, fmt.Sprintf("%s is not listed under releases", id), "list the release, or remove it here")
			case seen[key]:
				r.problem(of.node.Line, of.path, fmt.Sprintf("%s has %s already", id, short(need.Object)), "remove one of the two")
			}
			seen[key] = true
			need.Of = append(need.Of, id)
		}
		need.Has = n.lines("has", maxLines)
		slices.SortFunc(need.Of, ReleaseID.Compare)
		slices.Sort(need.Has)
		out = append(out, need)
	}
	return out
}

func (r *reader) release(item item) Release {
	o := r.object(item.node, item.path, "driver", "version", "state", "reason", "oneWay", "kubernetes", "vsphere", "requires", "manifests", "images", "notes")
	release := Release{
		ReleaseID: ReleaseID{
			Driver:  field(o, "driver", required, ParseDriver),
			Version: field(o, "version", required, releaseVersion),
		},
		State:  field(o, "state", required, parseState),
		Reason: field(o, "reason", optional, line),
		OneWay: field(o, "oneWay", optional, line),
	}
	r.reasoned(o, release.State, release.Reason)
	release.Kubernetes = r.kubernetes(o, release.ReleaseID)
	release.VSphere = r.vsphere(o, release.Driver)
	release.Requires = r.requires(o, release.Driver)
	release.Manifests = r.manifests(o)
	release.Images = r.images(o)
	release.Notes = o.lines("notes", maxElements)
	return release
}

func (r *reader) kubernetes(o object, id ReleaseID) KubernetesRange {
	k := o.object("kubernetes", required, "min", "max", "basis", "derived")
	if k.fields == nil {
		return KubernetesRange{}
	}
	bounded := required
	if id.Driver == CNI || id.Driver == SnapshotController {
		bounded = optional
	}
	out := KubernetesRange{
		Min: field(k, "min", required, ParseMinor), Max: field(k, "max", bounded, ParseMinor),
		Basis: field(k, "basis", required, line), Derived: field(k, "derived", optional, boolean),
	}
	if out.Min.IsZero() || out.Max.IsZero() {
		return out
	}
	own := id.Version.Minor()
	switch {
	case out.Max.Compare(out.Min) < 0:
		k.fail("max", fmt.Sprintf("%s is below min %s", out.Max, out.Min), "swap the two")
	case out.Max.Major != out.Min.Major || out.Max.Minor-out.Min.Minor >= maxMinors:
		k.fail("max", fmt.Sprintf("%s is more than %d minors above min %s", out.Max, maxMinors, out.Min), "correct the range")
	case id.Driver == CPI && !id.Version.IsZero() && (out.Min != own || out.Max != own):
		k.fail("min", fmt.Sprintf("the range is %s, and a cpi serves the Kubernetes minor of its own version alone", out), fmt.Sprintf("make min and max %s", own))
	}
	return out
}

func (r *reader) vsphere(o object, d Driver) VSphereRange {
	needed := optional
	if d == CPI || d == CSI {
		needed = required
	}
	v := o.object("vsphere", needed, "min", "max", "basis", "derived")
	if v.fields == nil {
		return VSphereRange{}
	}
	out := VSphereRange{
		Min: field(v, "min", required, ParseVersion), Max: field(v, "max", optional, ParseCeiling),
		Basis: field(v, "basis", required, line), Derived: field(v, "derived", optional, boolean),
	}
	if !out.Min.IsZero() && !out.Max.Covers(out.Min) {
		v.fail("max", fmt.Sprintf("%s is below min %s", out.Max, out.Min), "swap the two")
	}
	return out
}

func (r *reader) requires(o object, d Driver) []Requirement {
	var out []Requirement
	for _, item := range o.list("requires", optional, maxElements) {
		q := r.object(item.node, item.path, "driver", "version", "optional")
		need := Requirement{
			Driver:  field(q, "driver", required, ParseDriver),
			Version: field(q, "version", optional, releaseVersion), Optional: field(q, "optional", optional, boolean),
		}
		switch twice := slices.ContainsFunc(out, func(n Requirement) bool { return n.Driver == need.Driver }); {
		case need.Driver == "": // reported already
		case d != "" && d != CSI:
			q.fail("driver", fmt.Sprintf("a release of %s requires no other driver: only csi does", d), "remove the requirement")
		case need.Driver != CPI && need.Driver != SnapshotController:
			q.fail("driver", fmt.Sprintf("csi requires cpi and snapshot-controller alone, not %s", need.Driver), "remove the requirement")
		case twice:
			q.fail("driver", fmt.Sprintf("%s is required twice", need.Driver), "remove one of the two")
		}
		out = append(out, need)
		r.required = append(r.required, requiredAt{item, need})
	}
	return out
}

// requiredAt is a requirement and where it is.
type requiredAt struct {
	item
	Requirement
}

// met checks that every requirement names something that is listed.
func (r *reader) met(releases []Release) {
	listed := map[string]bool{}
	for _, release := range releases {
		listed[release.ReleaseID.String()], listed[string(release.Driver)] = true, true
	}
	for _, need := range r.required {
		if need.Driver != "" && !listed[need.String()] {
			r.problem(need.node.Line, need.path, need.String()+" is not listed", "list that release, or correct the version")
		}
	}
}

func (r *reader) manifests(o object) []Manifest {
	var out []Manifest
	for _, item := range o.list("manifests", required, maxElements) {
		m := r.object(item.node, item.path, "name", "part", "url", "size", "sha256")
		manifest := Manifest{
			Name: field(m, "name", required, fileName), Part: field(m, "part", optional, parsePart),
			URL: field(m, "url", required, address), Size: field(m, "size", required, positive[int64](MaxManifestSize)),
			SHA256: field(m, "sha256", required, sha256Text),
		}
		if manifest.Name != "" && slices.ContainsFunc(out, func(n Manifest) bool { return n.Name == manifest.Name }) {
			m.fail("name", fmt.Sprintf("%s is listed twice in this release", manifest.Name), "remove one of the two")
		}
		out = append(out, manifest)
	}
	return out
}

func (r *reader) images(o object) []ImageOverride {
	var out []ImageOverride
	for _, item := range o.list("images", optional, maxElements) {
		i := r.object(item.node, item.path, "from", "to", "basis")
		override := ImageOverride{
			From: field(i, "from", required, imageText), To: field(i, "to", required, pinnedImage),
			Basis: field(i, "basis", required, line),
		}
		if override.From != "" && slices.ContainsFunc(out, func(n ImageOverride) bool { return n.From == override.From }) {
			i.fail("from", fmt.Sprintf("%s is replaced twice", override.From), "remove one of the two")
		}
		out = append(out, override)
	}
	return out
}
