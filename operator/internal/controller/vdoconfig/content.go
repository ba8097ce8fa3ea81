package vdoconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime/debug"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// program identifies this program by the commit that it was built from: another one
// may make something else of the same release.
var program = func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}()

// content identifies, for each driver decided for, what its objects are made of
// beside the site's configuration: PROGRAM/BUNDLE, hashes of the program, and of the
// mirror and the release in the bundle with its images. How the site has pods name images
// counts as the program: the images are the same.
func content(d decision) (map[matrix.Driver]string, error) {
	all := map[matrix.Driver]string{}
	if d.from == nil {
		return all, nil
	}
	for _, id := range d.releases {
		made, err := d.bundleOf(id.Driver).made(id)
		if err != nil {
			return nil, err
		}
		if made != "" {
			all[id.Driver] = made
		}
	}
	return all, nil
}

// made is the content of a release of a bundle, "" where it does not hold it.
func (o *opened) made(id matrix.ReleaseID) (string, error) {
	maker := program
	if names := o.source.Spec.ImageNames; names != "" && names != v1alpha1.ImageNamesRepository {
		maker += " " + string(names)
	}
	by := sha256.Sum256([]byte(maker))
	lock := o.contents.Lock
	i := slices.IndexFunc(lock.Releases, func(r bundle.Release) bool { return r.Driver == id.Driver && r.Version.String() == id.Version.String() })
	if i < 0 {
		return "", nil
	}
	digests, images := map[string]string{}, map[string]string{}
	for _, i := range lock.Images {
		digests[i.Reference.String()] = i.Digest.String()
	}
	for _, ref := range lock.Releases[i].Images {
		images[ref] = digests[ref]
	}
	data, err := json.Marshal([]any{o.source.Status.Repository, lock.Releases[i], images})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(by[:4]) + "/" + hex.EncodeToString(sum[:16]), err
}
