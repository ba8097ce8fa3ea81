package render

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix/needs"
)

// carried is the operator's own matrix. It applies to bundles older than the lists of releases' needs.
var carried = sync.OnceValues(func() (*matrix.Document, error) { return matrix.Parse(matrix.DefaultName, matrix.Default()) })

// Listed returns why a release of a bundle may not be installed again: no matrix lists the needs of its files. It
// reads no manifests. doc is the bundle's matrix; the operator's own one is the fallback.
func Listed(lock *bundle.Lock, id matrix.ReleaseID, doc *matrix.Document) error {
	release, err := releaseOf(lock, id)
	if err != nil {
		return err
	}
	_, err = listOf(release, id, doc)
	return err
}

// listOf returns the lines of each object that a release needs, or why no list exists. A list is valid only for the
// manifests with its sha256 sums.
func listOf(release *bundle.Release, id matrix.ReleaseID, doc *matrix.Document) (map[string][]string, error) {
	own, err := carried()
	if err != nil {
		return nil, err
	}
	for _, d := range []*matrix.Document{doc, own} {
		if d == nil {
			continue
		}
		if list, listed := d.NeedsOf(id); listed {
			return list, bound(release, id, d)
		}
	}
	return nil, errors.New(matrix.WhyUnlisted)
}

// bound returns an error if a release's manifests are not those that a document lists.
func bound(release *bundle.Release, id matrix.ReleaseID, doc *matrix.Document) error {
	listed, ok := doc.Release(id)
	if !ok {
		return errors.New("the matrix does not list it")
	}
	for _, f := range release.Manifests {
		same := func(m matrix.Manifest) bool { return m.Name == f.Name && m.SHA256 == f.Digest.Hex() }
		if !slices.ContainsFunc(listed.Manifests, same) {
			return fmt.Errorf("%s of %s is not the manifest whose needs the matrix lists", f.Name, f.Digest)
		}
	}
	return nil
}

// compare reports the differences between an object and its list, in both directions. Listed objects may be missing:
// the list covers whole files, and parts of a release may be omitted.
func (f *finding) compare(list map[string][]string) {
	described, err := needs.Of(f.object.Object)
	if err != nil {
		f.add("cannot be described: %w", err)
		return
	}
	listed, ok := list[described[0].Name]
	if !ok {
		f.add("is not listed in the matrix")
		return
	}
	for _, line := range described[0].Lines {
		f.when(!slices.Contains(listed, line), "has what the matrix does not list: %s", line)
	}
	for _, line := range listed {
		f.when(!slices.Contains(described[0].Lines, line), "lacks what the matrix lists: %s", line)
	}
}
