package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix/needs"
)

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
