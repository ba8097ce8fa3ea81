// Package mirrorset is what OpenShift's objects say that lead its nodes from upstream's names
// of images to a mirror: their kinds, and the entries that are written into one. Pure.
//
// A mirror is laid out as `push --layout paths` does it: below one repository the upstream
// host, then the upstream path. An entry leads one upstream repository there:
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
// The Machine Config Operator makes /etc/containers/registries.conf of all such objects and
// writes it onto every node. Sources and mirrors that are added for names with a digest are
// taken up by a reload of CRI-O; where one is taken away, its policy is changed, or names with a
// tag are led anywhere, the nodes are drained first, one after the other, and by some releases
// rebooted. While two objects give one source different policies it makes nothing of any of them.
package mirrorset

import (
	"cmp"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Kind is a kind of object that leads images to mirrors.
type Kind struct {
	Group, Version, Kind string
	// Field of spec that the entries are in.
	Field string
	// Tags is set where names with a tag are led, and not those with a digest.
	Tags bool
}

// The kinds. ContentSourcePolicy came before the others, which OpenShift has since 4.13.
var (
	Digests             = Kind{"config.openshift.io", "v1", "ImageDigestMirrorSet", "imageDigestMirrors", false}
	Tags                = Kind{"config.openshift.io", "v1", "ImageTagMirrorSet", "imageTagMirrors", true}
	ContentSourcePolicy = Kind{"operator.openshift.io", "v1alpha1", "ImageContentSourcePolicy", "repositoryDigestMirrors", false}
)

// Kinds are all of them.
func Kinds() []Kind { return []Kind{Digests, Tags, ContentSourcePolicy} }

// APIVersion is GROUP/VERSION.
func (k Kind) APIVersion() string { return k.Group + "/" + k.Version }

// Policy says whether the source is asked where no mirror has an image.
type Policy string

// The policies.
const (
	AllowContactingSource Policy = "AllowContactingSource"
	NeverContactSource    Policy = "NeverContactSource"
)

// Entry leads one upstream repository to mirrors, which are asked in this order. All are
// HOST/PATH.
type Entry struct {
	Source  string   `json:"source"`
	Mirrors []string `json:"mirrors"`
	// Policy of the source; "" is AllowContactingSource.
	Policy Policy `json:"policy,omitempty"`
}

// Entries are those of one object, sorted by their sources, each once.
type Entries []Entry

// Of returns the entries that lead the repositories of images to a mirror's repository. It
// fails for an image whose name has no place there.
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

// Union returns the entries of all sets as one. Of a source that several have, the mirrors of
// the first are asked first, and where one of them has a policy it counts.
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

// Get returns the entry of a source, and whether there is one.
func (e Entries) Get(source string) (Entry, bool) {
	if i, known := e.find(source); known {
		return e[i], true
	}
	return Entry{}, false
}

func (e Entries) find(source string) (int, bool) {
	return slices.BinarySearchFunc(e, source, func(a Entry, source string) int { return cmp.Compare(a.Source, source) })
}

// Read returns what an object of a kind has, in its order: a source may be there more than once.
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

// Object returns the object of a kind that has the entries, as JSON would be decoded; the policy is
// that of entries without one.
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
