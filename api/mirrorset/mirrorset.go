// Package mirrorset has the OpenShift objects that redirect nodes from upstream's image names to a
// mirror: their kinds and entries. Its functions are pure.
//
// `push --layout paths` lays out the mirror: below one repository the upstream host, then the
// upstream path. An entry redirects one upstream repository:
//
//	apiVersion: config.openshift.io/v1
//	kind: ImageDigestMirrorSet
//	metadata:
//	  name: NAME
//	spec:
//	  imageDigestMirrors:
//	    - source: registry.k8s.io/csi-vsphere/driver
//	      mirrors:
//	        - registry.site/vdo/drivers/registry.k8s.io/csi-vsphere/driver
//	      mirrorSourcePolicy: AllowContactingSource
//
// The Machine Config Operator makes /etc/containers/registries.conf of all such objects and writes
// it to every node. CRI-O reloads added sources and mirrors for names with a digest. Other changes
// are a removed entry, a changed policy, or any entry for names with a tag. Before those the nodes
// are drained, one after the other, and some releases reboot them. While two objects give one
// source different policies, it ignores all of them.
package mirrorset

import (
	"cmp"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Kind is a kind of object that redirects images to mirrors.
type Kind struct {
	Group, Version, Kind string
	// Field of spec with the entries.
	Field string
	// Tags is set if the kind redirects names with a tag, and not those with a digest.
	Tags bool
}

// Kinds of mirror sets. ContentSourcePolicy is older than the others, which OpenShift has since 4.13.
var (
	Digests             = Kind{"config.openshift.io", "v1", "ImageDigestMirrorSet", "imageDigestMirrors", false}
	Tags                = Kind{"config.openshift.io", "v1", "ImageTagMirrorSet", "imageTagMirrors", true}
	ContentSourcePolicy = Kind{"operator.openshift.io", "v1alpha1", "ImageContentSourcePolicy", "repositoryDigestMirrors", false}
)

// Kinds returns all of them.
func Kinds() []Kind { return []Kind{Digests, Tags, ContentSourcePolicy} }

// APIVersion returns GROUP/VERSION.
func (k Kind) APIVersion() string { return k.Group + "/" + k.Version }

// Policy says whether nodes try the source if no mirror has an image.
type Policy string

// The policies.
const (
	AllowContactingSource Policy = "AllowContactingSource"
	NeverContactSource    Policy = "NeverContactSource"
)

// Entry redirects one upstream repository to mirrors, in order of preference. All are HOST/PATH.
type Entry struct {
	Source  string   `json:"source"`
	Mirrors []string `json:"mirrors"`
	// Policy of the source; "" is AllowContactingSource.
	Policy Policy `json:"policy,omitempty"`
}

// Entries are those of one object, sorted by source, each once.
type Entries []Entry

// Of returns the entries that redirect the repositories of images to a mirror's repository. It
// fails if an image's name has no path there.
func Of(images []image.Reference, mirror image.Reference) (Entries, error) {
	var all Entries
	for _, ref := range images {
		to, err := ref.Below(mirror)
		if err != nil {
			return nil, err
		}
		all = append(all, Entry{Source: ref.Repository(), Mirrors: []string{to.Repository()}})
	}
	return Union(all), nil
}

// Union returns the entries of all sets as one. If several sets have a source, the mirrors of the
// first set come first, and the first policy applies.
func Union(sets ...Entries) Entries {
	var all Entries
	for _, e := range slices.Concat(sets...) {
		i, known := all.find(e.Source)
		if !known {
			all = slices.Insert(all, i, Entry{Source: e.Source})
		}
		all[i].Policy = cmp.Or(all[i].Policy, e.Policy)
		for _, m := range e.Mirrors {
			if !slices.Contains(all[i].Mirrors, m) {
				all[i].Mirrors = append(all[i].Mirrors, m)
			}
		}
	}
	return all
}

// Get returns the entry of a source, and whether it exists.
func (e Entries) Get(source string) (Entry, bool) {
	if i, known := e.find(source); known {
		return e[i], true
	}
	return Entry{}, false
}

func (e Entries) find(source string) (int, bool) {
	return slices.BinarySearchFunc(e, source, func(a Entry, source string) int { return cmp.Compare(a.Source, source) })
}

// Read returns the entries of an object in its order; a source may occur more than once.
func Read(object map[string]any, k Kind) []Entry {
	spec, _ := object["spec"].(map[string]any)
	list, _ := spec[k.Field].([]any)
	var all []Entry
	for _, item := range list {
		entry, _ := item.(map[string]any)
		mirrors, _ := entry["mirrors"].([]any)
		var e Entry
		e.Source, _ = entry["source"].(string)
		for _, m := range mirrors {
			if to, ok := m.(string); ok {
				e.Mirrors = append(e.Mirrors, to)
			}
		}
		if entry["mirrorSourcePolicy"] == string(NeverContactSource) {
			e.Policy = NeverContactSource
		}
		if e.Source != "" {
			all = append(all, e)
		}
	}
	return all
}

// Object returns an object of a kind with the entries, in the form of decoded JSON. The policy is
// for entries without one.
func (e Entries) Object(k Kind, name string, policy Policy) map[string]any {
	entries := make([]any, len(e))
	for i, entry := range e {
		mirrors := make([]any, len(entry.Mirrors))
		for n, m := range entry.Mirrors {
			mirrors[n] = m
		}
		entries[i] = map[string]any{"source": entry.Source, "mirrors": mirrors, "mirrorSourcePolicy": string(cmp.Or(entry.Policy, policy))}
	}
	return map[string]any{
		"apiVersion": k.APIVersion(), "kind": k.Kind,
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{k.Field: entries},
	}
}
