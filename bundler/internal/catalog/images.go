package catalog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix/needs"
)

// Use is one place of a manifest file that names an image.
type Use struct {
	Image string // the reference as it is written
	Where string // object and container: "DaemonSet vsphere-csi-node, container node-driver-registrar"
}

// Images returns every use of an image in a manifest file, in the order of the
// file. The name is the file's, for errors.
//
// Looked at are the pod templates of every object: the paths at which the built-in
// workloads keep them, whatever the object's kind; all kinds of containers; image
// volumes; and the items of a List. No upstream manifest names an image in an
// argument, a variable or a configuration file.
func Images(name string, data []byte) ([]Use, error) {
	objects, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	var uses []Use
	var problems []error
	for _, object := range objects {
		found, err := imagesOf(object)
		uses = append(uses, found...)
		if err != nil {
			problems = append(problems, unreadable(name, err))
		}
	}
	return uses, fault.Join(problems...)
}

func unreadable(name string, err error) error {
	return fault.Errorf(fault.InvalidInput, "read manifest", name,
		"the file is not the upstream manifest that a matrix may name: check the matrix's URL and sha256 for it", "%w",
		err)
}

// parse returns the objects of a multi-document file; items of a List stand for themselves.
func parse(name string, data []byte) (objects []map[string]any, err error) {
	if len(data) > matrix.MaxManifestSize {
		return nil, unreadable(name, fmt.Errorf("larger than %d bytes", matrix.MaxManifestSize))
	}
	decoded, err := needs.Decode(data)
	if err != nil {
		return nil, unreadable(name, errors.New(strings.Join(strings.Fields(err.Error()), " "))) // in one line
	}
	for _, object := range decoded {
		objects = append(objects, items(object)...)
	}
	return objects, nil
}

func items(object map[string]any) []map[string]any {
	list, ok := object["items"].([]any)
	if kind, _ := object["kind"].(string); !ok || !strings.HasSuffix(kind, "List") {
		return []map[string]any{object}
	}
	var out []map[string]any
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			out = append(out, items(m)...)
		}
	}
	return out
}

// podSpecs are where the built-in kinds keep a pod's specification: Pod; Deployment,
// DaemonSet, StatefulSet, ReplicaSet, ReplicationController and Job; CronJob; PodTemplate.
var podSpecs = [][]string{
	{"spec"},
	{"spec", "template", "spec"},
	{"spec", "jobTemplate", "spec", "template", "spec"},
	{"template", "spec"},
}

var containerLists = []string{"initContainers", "containers", "ephemeralContainers"}

func imagesOf(object map[string]any) ([]Use, error) {
	var uses []Use
	var problems []error
	owner := title(object)
	for _, path := range podSpecs {
		spec := at(object, path)
		for _, list := range containerLists {
			found, err := containerImages(spec, list, owner)
			uses, problems = append(uses, found...), append(problems, err)
		}
		uses = append(uses, volumeImages(spec, owner)...)
	}
	return uses, fault.Join(problems...)
}

func at(object map[string]any, path []string) map[string]any {
	for _, key := range path {
		object, _ = object[key].(map[string]any)
	}
	return object
}

func title(object map[string]any) string {
	kind, _ := object["kind"].(string)
	name, _ := at(object, []string{"metadata"})["name"].(string)
	return strings.TrimSpace(kind + " " + name)
}

func containerImages(spec map[string]any, list, owner string) ([]Use, error) {
	value, ok := spec[list]
	if !ok || value == nil {
		return nil, nil
	}
	containers, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("%s: %s is not a list", owner, list)
	}
	var uses []Use
	var problems []error
	for i, c := range containers {
		container, _ := c.(map[string]any)
		name, _ := container["name"].(string)
		if name == "" {
			name = fmt.Sprintf("number %d", i+1)
		}
		where := fmt.Sprintf("%s, %s %s", owner, strings.TrimSuffix(list, "s"), name)
		image, _ := container["image"].(string)
		if image == "" {
			problems = append(problems, fmt.Errorf("%s: names no image", where))
			continue
		}
		uses = append(uses, Use{Image: image, Where: where})
	}
	return uses, fault.Join(problems...)
}

// volumeImages finds volumes of type image (Kubernetes 1.31 and later).
func volumeImages(spec map[string]any, owner string) []Use {
	volumes, _ := spec["volumes"].([]any)
	var uses []Use
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		name, _ := volume["name"].(string)
		if reference, _ := at(volume, []string{"image"})["reference"].(string); reference != "" {
			uses = append(uses, Use{Image: reference, Where: owner + ", volume " + name})
		}
	}
	return uses
}
