package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/diff"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix/needs"
)

// addition holds the flags of `matrix add`.
type addition struct {
	folder, like, k8s, vSphere, basis, file string
}

func newMatrixAddCommand(a *app) *cobra.Command {
	c := &common{app: a}
	var f addition
	cmd := &cobra.Command{
		Use:   "add DRIVER@VERSION --manifests FOLDER",
		Short: "Add a release to a matrix, from its manifests",
		Long: `Writes the matrix with the next serial and one more release: its manifest files with
size and sha256, and what they need of a cluster. Everything else comes from the newest
older release, or from the one that --like names. In addresses and image overrides the new
version replaces the old one, and ranges are marked as derived. If the matrix lists the
release already, its files and needs are written again. The command shows the difference.
Check it, above all the addresses, then sign the matrix.`,
		Example: `  vdo-bundle matrix add csi@3.8.0 --manifests csi-3.8.0 -o matrix.yaml
  vdo-bundle matrix add csi@3.8.0 --manifests csi-3.8.0 --k8s 1.32-1.35 --vsphere 8.0- --basis 'release notes' -o matrix.yaml
  vdo-bundle matrix sign matrix.yaml --key release.key`,
	}
	fl := cmd.Flags()
	fl.StringVar(&f.folder, "manifests", "", "`FOLDER` with the release's manifest files, *.yaml and *.yml")
	fl.StringVar(&f.like, "like", "", "release (`DRIVER@VERSION`) to copy from (default the newest that is older)")
	fl.StringVar(&f.k8s, "k8s", "", "Kubernetes `RANGE`: 1.32-1.35, 1.33, or for a cni 1.32- without an end")
	fl.StringVar(&f.vSphere, "vsphere", "", "vSphere `RANGE`: 7.0.3-8.0, 8.0.3 or 8.0- without an end")
	fl.StringVar(&f.basis, "basis", "", "`TEXT` that says where these ranges come from")
	fl.StringVar(&f.file, "matrix", "", "compatibility matrix in `FILE` to add to (default: the one that is built in)")
	c.bindOutput(cmd, "`FILE` to write to, - for standard output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := matrix.ParseReleaseID(args[0])
		switch {
		case err != nil:
			return flags.Usage(cmd, err.Error())
		case (f.k8s+f.vSphere == "") != (f.basis == ""):
			return flags.Usage(cmd, "--basis says where the ranges of --k8s and --vsphere come from: give both, or neither")
		}
		doc, err := c.loadMatrix("--matrix", f.file)
		if err != nil {
			return err
		}
		return c.addTo(doc, id, f)
	}
	return cmd
}

// addTo adds a release to a document, and writes the document.
func (c *common) addTo(doc *matrix.Document, id matrix.ReleaseID, f addition) error {
	like, err := f.model(doc, id)
	if err != nil {
		return err
	}
	was := *doc // addTo replaces Releases, but changes Needs in place
	was.Needs = slices.Clone(doc.Needs)
	release, files, err := f.release(like, id)
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Second)
	if now.Before(doc.Issued) {
		return fault.Errorf(fault.InvalidInput, "add to", "the matrix", "correct this machine's clock",
			"it was issued at %s, and the clock here says %s", doc.Issued.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	doc.Serial, doc.Issued, doc.Expires = doc.Serial+1, now, now.Add(doc.Expires.Sub(doc.Issued))
	isIt := func(r matrix.Release) bool { return r.Compare(id) == 0 }
	doc.Releases = append(slices.DeleteFunc(slices.Clone(doc.Releases), isIt), release)
	if len(was.Needs) == 0 {
		takeNeeds(doc)
	}
	if err := needs.Describe(doc, id, files); err != nil {
		return err
	}
	data, err := doc.Marshal()
	if err != nil {
		return err
	}
	if _, err := matrix.Parse(id.String(), data); err != nil {
		return err
	}
	lines, end := diff.Listed(&was, doc, like.ReleaseID, id), "; it differs in this:"
	if len(lines) == 0 {
		end = " and no difference"
	}
	c.say("%s is listed as %s was, with serial %d%s", id, like.ReleaseID, doc.Serial, end)
	for _, line := range lines {
		c.say("    %s", line)
	}
	if lost := doc.Unlisted(); len(was.Needs) == 0 && len(lost) > 0 {
		c.say("warning: %s: lock no longer chooses these releases, since %s; add each with its manifests",
			strings.Join(slices.Sorted(maps.Keys(lost)), ", "), matrix.WhyUnlisted)
	}
	for _, m := range release.Manifests {
		if !strings.Contains(m.URL, id.Version.String()) {
			c.say("note: check the address of %s, which does not name the version: %s", m.Name, m.URL)
		}
	}
	if like.OneWay != release.OneWay {
		c.say("note: %s may not be gone back from (%s): add oneWay where that holds for %s too",
			like.ReleaseID, like.OneWay, id)
	}
	return c.deliver(c.dest, data, "")
}

// takeNeeds copies the needs of releases with the same manifests from the built-in matrix. A document that lists the
// needs of one release must list those of all.
func takeNeeds(doc *matrix.Document) {
	builtIn, err := matrix.Parse(matrix.DefaultName, matrix.Default())
	if err != nil {
		return // nothing to take
	}
	same := func(a, b matrix.Manifest) bool { return a.Name == b.Name && a.SHA256 == b.SHA256 }
	for _, n := range builtIn.Needs {
		n.Of = slices.DeleteFunc(n.Of, func(id matrix.ReleaseID) bool {
			theirs, _ := builtIn.Release(id)
			ours, _ := doc.Release(id)
			return !slices.EqualFunc(ours.Manifests, theirs.Manifests, same)
		})
		if len(n.Of) > 0 {
			doc.Needs = append(doc.Needs, n)
		}
	}
}

// model returns the release to copy from.
func (f addition) model(doc *matrix.Document, id matrix.ReleaseID) (like matrix.Release, err error) {
	for _, r := range doc.Releases { // sorted
		switch {
		case r.Compare(id) == 0: // replace it
			return r, nil
		case f.like == r.ReleaseID.String(), f.like == "" && r.Driver == id.Driver && r.Version.LessThan(id.Version):
			like = r
		}
	}
	if like.Driver != id.Driver {
		err = fault.Errorf(fault.InvalidInput, "add release", id.String(), "name one that the matrix lists with --like",
			"there is no such release of %s to copy from", id.Driver)
	}
	return like, err
}

// release builds the release and reads its files.
func (f addition) release(like matrix.Release, id matrix.ReleaseID) (matrix.Release, map[string][]byte, error) {
	renamed := func(s string) string { return strings.ReplaceAll(s, like.Version.String(), id.Version.String()) }
	r := like
	if like.Compare(id) != 0 {
		r.ReleaseID, r.State, r.Reason, r.OneWay, r.Notes = id, matrix.Current, "", "", nil
	}
	r.Images = nil
	for _, i := range like.Images {
		r.Images = append(r.Images, matrix.ImageOverride{From: renamed(i.From), To: renamed(i.To), Basis: i.Basis})
	}
	if err := f.ranges(&r, like); err != nil {
		return r, nil, err
	}
	names, err := f.files(like)
	if err != nil {
		return r, nil, err
	}
	r.Manifests = nil
	files := map[string][]byte{}
	var uses []catalog.Use
	for _, name := range names {
		data, err := userfile.Read("--manifests", filepath.Join(f.folder, name), matrix.MaxManifestSize)
		if err != nil {
			return r, nil, err
		}
		of, err := catalog.Images(name, data)
		if err != nil {
			return r, nil, err
		}
		uses = append(uses, of...)
		sum := sha256.Sum256(data)
		first := like.Manifests[0].URL
		m := matrix.Manifest{URL: first[:strings.LastIndex(first, "/")+1] + name}
		if n := slices.IndexFunc(like.Manifests, func(m matrix.Manifest) bool { return m.Name == name }); n >= 0 {
			m = like.Manifests[n]
		}
		minor := func(id matrix.ReleaseID) string { return "/v" + id.Version.Minor().String() + "/" }
		m.URL = strings.ReplaceAll(renamed(m.URL), minor(like.ReleaseID), minor(id)) // a folder of cpi
		m.Name, m.Size, m.SHA256 = name, int64(len(data)), hex.EncodeToString(sum[:])
		r.Manifests, files[name] = append(r.Manifests, m), data
	}
	r.Images = slices.DeleteFunc(r.Images, func(i matrix.ImageOverride) bool { // lock refuses one without a use
		return !slices.ContainsFunc(uses, func(u catalog.Use) bool { return catalog.Replaces(i, u.Image) })
	})
	return r, files, nil
}

// files returns the manifest names in the directory: those of the other release in its order, then the rest.
func (f addition) files(like matrix.Release) (names []string, err error) {
	entries, err := os.ReadDir(f.folder)
	if err != nil {
		return nil, userfile.Unreadable("--manifests", f.folder, err)
	}
	for _, e := range entries { // sorted
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			names = append(names, e.Name())
		}
	}
	location := func(name string) int {
		if n := slices.IndexFunc(like.Manifests, func(m matrix.Manifest) bool { return m.Name == name }); n >= 0 {
			return n
		}
		return len(like.Manifests)
	}
	slices.SortStableFunc(names, func(a, b string) int { return location(a) - location(b) })
	if len(names) == 0 {
		err = flags.Bad("--manifests", f.folder, errors.New("there is no *.yaml and no *.yml in it"),
			"name the folder with the manifests")
	}
	return names, err
}

// ranges sets the ranges of the flags, and marks the copied ones as derived.
func (f addition) ranges(r *matrix.Release, like matrix.Release) error {
	over := func(basis string) string { return fmt.Sprintf("copied from %s: %s", like.ReleaseID, basis) }
	isNew := r.Compare(like.ReleaseID) != 0
	var k8sErr, vSphereErr error
	switch text, isOpen := strings.CutSuffix(f.k8s, "-"); {
	case f.k8s != "":
		var minors []matrix.Minor
		if minors, k8sErr = matrix.ParseMinors(text); k8sErr == nil {
			r.Kubernetes = matrix.KubernetesRange{Basis: f.basis, Min: minors[0]}
		}
		if k8sErr == nil && !isOpen {
			r.Kubernetes.Max = minors[len(minors)-1]
		}
	case r.Driver == matrix.CPI:
		r.Kubernetes.Min, r.Kubernetes.Max = r.Version.Minor(), r.Version.Minor()
	case isNew:
		r.Kubernetes.Basis, r.Kubernetes.Derived = over(like.Kubernetes.Basis), true
	}
	switch low, high, isRange := strings.Cut(f.vSphere, "-"); {
	case f.vSphere != "":
		r.VSphere = matrix.VSphereRange{Basis: f.basis}
		r.VSphere.Min, vSphereErr = matrix.ParseVSphere(low)
		if !isRange {
			high = low
		}
		if high != "" && vSphereErr == nil {
			r.VSphere.Max, vSphereErr = matrix.ParseCeiling(high)
		}
	case isNew && like.VSphere.Basis != "":
		r.VSphere.Basis, r.VSphere.Derived = over(like.VSphere.Basis), true
	}
	if k8sErr != nil {
		k8sErr = flags.Bad("--k8s", f.k8s, k8sErr, "write 1.32-1.35, 1.33 or 1.32-")
	}
	if vSphereErr != nil {
		vSphereErr = flags.Bad("--vsphere", f.vSphere, vSphereErr, "write 7.0.3-8.0, 8.0.3 or 8.0-")
	}
	return fault.Join(k8sErr, vSphereErr)
}

func newMatrixDiffCommand(a *app) *cobra.Command {
	c := &common{app: a}
	cmd := &cobra.Command{
		Use:   "diff FROM TO",
		Short: "Show what changes from one matrix to another",
		Long: `Shows which releases, services and vSphere aliases are new, gone or changed from one
matrix document to another. It compares state, ranges, images and manifests with their
addresses, and line by line what a release needs of a cluster. A new release shows all
fields, and how its needs differ from those of the newest older release in FROM. Write ""
for the built-in matrix.`,
		Example: `  vdo-bundle matrix diff old.yaml new.yaml
  vdo-bundle matrix diff "" new.yaml --format json`,
	}
	c.bindFormat(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		from, err := c.loadMatrix("FROM", args[0])
		to, toErr := c.loadMatrix("TO", args[1])
		if err := fault.Join(err, toErr); err != nil {
			return err
		}
		d := diff.Matrices(from, to)
		return c.show(d, func(p *printer) { p.matrix(d) })
	}
	return cmd
}

func newMatrixExportCommand(a *app) *cobra.Command {
	c := &common{app: a}
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the complete built-in matrix",
		Long: `Writes the built-in matrix document byte for byte, with the list of what its releases
need of a cluster. Begin a matrix of your own with it.`,
		Example: `  vdo-bundle matrix export -o matrix.yaml`,
		RunE:    func(*cobra.Command, []string) error { return c.deliver(c.dest, matrix.Default(), "") },
	}
	c.bindOutput(cmd, "`FILE` to write to, - for standard output")
	return cmd
}

// changes prints the changes, if any.
func (p *printer) changes(title string, c diff.Changes) {
	if c.Empty() {
		return
	}
	p.line("\n%s", title)
	for _, x := range c.Removed {
		p.line("- %s", x.Name)
	}
	for _, x := range c.Added {
		p.change("+", x)
	}
	for _, x := range c.Changed {
		p.change("~", x)
	}
}

func (p *printer) change(mark string, x diff.Change) {
	if p.line("%s %s", mark, x.Name); x.From != x.To {
		p.line("    %s", x.To)
		p.line("    was %s", x.From)
	}
	for _, what := range x.What {
		p.line("    %s", what)
	}
}

// matrix prints which documents were compared, and how they differ.
func (p *printer) matrix(m diff.MatrixChange) {
	title := fmt.Sprintf("matrix: serial %d", m.ToSerial)
	if m.FromSerial != m.ToSerial {
		title += fmt.Sprintf(", was %d", m.FromSerial)
	} else {
		title += " of both"
	}
	if e := m.Expires; e != nil {
		title += fmt.Sprintf("; expires %s, was %s", e.To, e.From)
	}
	if m.Other {
		title += "; no entry differs, but the documents do"
	}
	if m.Empty() && (m.FromSerial != m.ToSerial || m.Expires != nil || m.Other) {
		p.line("\n%s", title)
	}
	p.changes(title, m.Changes)
}
