package vdoconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime/debug"

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
	maker := program
	if names := d.from.source.Spec.ImageNames; names != "" && names != v1alpha1.ImageNamesRepository {
		maker += " " + string(names)
	}
	made := sha256.Sum256([]byte(maker))
	by, lock := hex.EncodeToString(made[:4]), d.from.contents.Lock
	digests := map[string]string{}
	for _, i := range lock.Images {
		digests[i.Reference.String()] = i.Digest.String()
	}
	for _, r := range lock.Releases {
		if d.version(r.Driver) != r.Version.String() {
			continue
		}
		images := map[string]string{}
		for _, ref := range r.Images {
			images[ref] = digests[ref]
		}
		data, err := json.Marshal([]any{d.from.source.Status.Repository, r, images})
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		all[r.Driver] = by + "/" + hex.EncodeToString(sum[:16])
	}
	return all, nil
}
