package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix/needs"
)

// Files are manifest files by [bundle.Release.Path].
type Files map[string][]byte

// Read returns a lock of releases and services with their images, sorted by reference and without values from
// registries. It checks manifest files against size and sha256 in the matrix.
func Read(releases []matrix.Release, files Files, services ...matrix.ServiceRelease) (*bundle.Lock, error) {
	lock := &bundle.Lock{APIVersion: bundle.LockAPIVersion, Kind: bundle.LockKind}
	images := map[image.Reference]*bundle.Image{}
	var problems []error
	for _, release := range releases {
		locked, used, err := readRelease(release, files)
		problems = append(problems, err)
		lock.Releases = append(lock.Releases, locked)
		for _, i := range used {
			merge(images, i)
		}
	}
	for _, service := range services {
		locked, i, err := readService(service)
		if problems = append(problems, err); err == nil {
			lock.Releases = append(lock.Releases, locked)
			merge(images, i)
		}
	}
	if err := fault.Join(problems...); err != nil {
		return nil, err
	}
	byName := func(a, b image.Reference) int { return cmp.Compare(a.String(), b.String()) }
	for _, ref := range slices.SortedFunc(maps.Keys(images), byName) {
		lock.Images = append(lock.Images, *images[ref])
	}
	return lock, nil
}

// merge adds an image, or another user of it.
func merge(images map[image.Reference]*bundle.Image, i bundle.Image) {
	known, ok := images[i.Reference]
	if !ok {
		i.UsedBy = slices.Clone(i.UsedBy)
		images[i.Reference] = &i
		return
	}
	known.UsedBy = append(known.UsedBy, i.UsedBy...)
	slices.Sort(known.UsedBy)
	known.UsedBy = slices.Compact(known.UsedBy)
	if known.Reason == "" {
		known.Source, known.Reason = i.Source, i.Reason
	}
}

// readRelease returns the lock's entry for a release, and the images that it uses.
func readRelease(release matrix.Release, files Files) (bundle.Release, []bundle.Image, error) {
	locked := bundle.Release{Driver: release.Driver, Version: release.Version, Images: map[string]string{}}
	var used []bundle.Image
	var problems []error
	for _, m := range release.Manifests {
		key := locked.Path(bundle.File{Name: m.Name})
		data := files[key]
		if size, got := int64(len(data)), image.DigestOf(data); size != m.Size || got.Hex() != m.SHA256 {
			problems = append(problems, fault.Errorf(fault.Corrupt, "read manifest", key,
				"the file at its URL was changed, or the matrix is wrong: compare both with the upstream release",
				"has %d bytes and digest %s, the matrix says %d bytes and sha256:%s", size, got, m.Size, m.SHA256))
			continue
		}
		file := bundle.File{Name: m.Name, URL: m.URL, Digest: image.DigestOf(data), Size: m.Size}
		locked.Manifests = append(locked.Manifests, file)
		problems = append(problems, eachImage(key, data, release.Images, func(use Use, i bundle.Image) {
			i.UsedBy = []string{release.ReleaseID.String()}
			used = append(used, i)
			locked.Images[use.Image] = i.Reference.String()
		}))
	}
	for n, rule := range release.Images { // one that replaces nothing does not fit the manifests
		_, err := image.ParseReference(rule.To) // else its images are problems already
		isOf := func(written string) bool { return ruleOf(written, release.Images) == n }
		if err == nil && !slices.ContainsFunc(slices.Collect(maps.Keys(locked.Images)), isOf) {
			problems = append(problems, fault.Errorf(fault.InvalidInput, "override image",
				fmt.Sprintf("%q of %s", rule.From, release.ReleaseID), "correct or remove the override in the matrix",
				"it replaces nothing in the manifests of the release"))
		}
	}
	return locked, used, fault.Join(problems...)
}

// eachImage visits every image of a manifest file, as named and as the rules resolve it.
func eachImage(key string, data []byte, rules []matrix.ImageOverride, visit func(Use, bundle.Image)) error {
	uses, err := Images(key, data)
	problems := []error{err}
	for _, use := range uses {
		if i, err := resolve(use.Image, rules); err != nil {
			problems = append(problems, fmt.Errorf("manifest %s: %s: %w", key, use.Where, err))
		} else {
			visit(use, i)
		}
	}
	return fault.Join(problems...)
}

// Agree returns a fault unless a lock holds every image in a release's manifest files, after the rules replace it.
func Agree(r bundle.Release, rules []matrix.ImageOverride, files Files) error {
	var problems []error
	disagree := func(reason fault.Reason, format string, args ...any) {
		problems = append(problems, fault.Errorf(reason, "check lock", r.ID(), "make a new lock with `vdo-bundle lock`",
			format, args...))
	}
	for _, f := range r.Manifests {
		problems = append(problems, eachImage(r.Path(f), files[r.Path(f)], rules, func(use Use, i bundle.Image) {
			switch is, want := r.Images[use.Image], i.Reference.String(); is {
			case want:
			case "":
				disagree(fault.Incomplete, "the lock lacks the image %s, which %s names (%s)", use.Image, f.Name, use.Where)
			default:
				disagree(fault.Corrupt, "the lock has %s for the image %s of %s, not %s", is, use.Image, f.Name, want)
			}
		}))
	}
	return fault.Distinct(fault.Join(problems...))
}

// resolve returns the image that a manifest's reference stands for.
func resolve(written string, rules []matrix.ImageOverride) (i bundle.Image, err error) {
	n := ruleOf(written, rules)
	if n < 0 {
		i.Reference, err = image.ParseReference(written)
	} else {
		i.Reference, err = image.ParseReference(rules[n].To)
		i.Source, i.Reason = i.Reference, join("the manifest names "+written, rules[n].Basis)
	}
	if moved, why := image.Relocate(i.Reference); why != "" {
		i.Source, i.Reason = moved, join(i.Reason, why)
	}
	return i, err
}

// maxReason limits a reason, in bytes, well below the limit of a lock.
const maxReason = 1000

// join joins non-empty reasons into one line.
func join(reasons ...string) string {
	reasons = slices.DeleteFunc(reasons, func(r string) bool { return r == "" })
	line := strings.Join(strings.Fields(strings.Join(reasons, "; ")), " ")
	return strings.ToValidUTF8(line[:min(len(line), maxReason)], "") // not half a letter
}

// ruleOf returns the place of the first rule for an image, or -1.
func ruleOf(written string, rules []matrix.ImageOverride) int {
	return slices.IndexFunc(rules, func(rule matrix.ImageOverride) bool { return Replaces(rule, written) })
}

// Replaces reports whether a rule is for an image of a manifest, in any spelling of its reference.
func Replaces(rule matrix.ImageOverride, written string) bool {
	return rule.From == written || normal(rule.From) == normal(written)
}

func normal(s string) string {
	ref, err := image.ParseReference(s)
	if err != nil {
		return s
	}
	return ref.String()
}

// Use is one mention of an image in a manifest file.
type Use struct {
	Image string // as written
	Where string // object and container: "DaemonSet vsphere-csi-node, container node-driver-registrar"
}

// Images returns every use of an image in a manifest file, by object; name is for errors. It reads all container
// lists and image volumes, at any depth. No upstream manifest names an image in an argument, variable or
// configuration file.
func Images(name string, data []byte) ([]Use, error) {
	if len(data) > matrix.MaxManifestSize {
		return nil, unreadable(name, fmt.Errorf("larger than %d bytes", matrix.MaxManifestSize))
	}
	objects, err := needs.Decode(data)
	if err != nil {
		return nil, unreadable(name, errors.New(strings.Join(strings.Fields(err.Error()), " "))) // on one line
	}
	f := finder{name: name}
	for _, object := range objects {
		f.look("", object)
	}
	return f.uses, fault.Join(f.problems...)
}

func unreadable(name string, err error) error {
	return fault.Errorf(fault.InvalidInput, "read manifest", name,
		"give the file that upstream publishes, or check the matrix's URL and sha256 for it", "%w",
		err)
}

type finder struct {
	name     string // of the file
	uses     []Use
	problems []error
}

var containerLists = []string{"containers", "ephemeralContainers", "initContainers"}

// look searches a part of an object, or a list of objects.
func (f *finder) look(owner string, part any) {
	switch part := part.(type) {
	case []any:
		for _, element := range part {
			f.look(owner, element)
		}
	case map[string]any:
		if meta, isObject := part["metadata"].(map[string]any); isObject && text(part, "kind") != "" {
			owner = strings.TrimSpace(text(part, "kind") + " " + text(meta, "name"))
		}
		for _, key := range slices.Sorted(maps.Keys(part)) {
			list, isList := part[key].([]any)
			switch {
			case isList && slices.Contains(containerLists, key):
				f.containers(owner+", "+strings.TrimSuffix(key, "s"), list)
			case isList && key == "volumes":
				f.volumes(owner, list)
			default:
				f.look(owner, part[key])
			}
		}
	}
}

func text(object map[string]any, key string) string {
	value, _ := object[key].(string) //nolint:errcheck // what is no text is none
	return value
}

func (f *finder) containers(kind string, list []any) {
	for i, element := range list {
		container, _ := element.(map[string]any) //nolint:errcheck // one that is none names no image
		where := kind + " " + cmp.Or(text(container, "name"), fmt.Sprintf("number %d", i+1))
		if image := text(container, "image"); image != "" {
			f.uses = append(f.uses, Use{Image: image, Where: where})
		} else {
			f.problems = append(f.problems, unreadable(f.name, fmt.Errorf("%s: names no image", where)))
		}
	}
}

// volumes finds volumes of type image (Kubernetes 1.31 and later).
func (f *finder) volumes(owner string, list []any) {
	for _, element := range list {
		volume, _ := element.(map[string]any)        //nolint:errcheck // one that is none has no image
		image, _ := volume["image"].(map[string]any) //nolint:errcheck // as most have none
		if reference := text(image, "reference"); reference != "" {
			f.uses = append(f.uses, Use{Image: reference, Where: owner + ", volume " + text(volume, "name")})
		}
	}
}
