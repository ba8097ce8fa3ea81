package vdoctl

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

func pointers[T any, P interface {
	*T
	client.Object
}](items []T) []client.Object {
	out := make([]client.Object, len(items))
	for i := range items {
		out[i] = P(&items[i])
	}
	return out
}

// present are those of the objects that are there.
func present(ctx context.Context, c client.Reader, all []client.Object) ([]client.Object, error) {
	var out []client.Object
	for _, x := range all {
		if x.GetName() == "" {
			continue
		}
		err := c.Get(ctx, client.ObjectKeyFromObject(x), x)
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, clusterFault("read "+describeObject(x), err)
		}
		out = append(out, x)
	}
	return out, nil
}

func isGone(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// documents are those of a file in YAML or JSON.
func documents(data []byte) (out [][]byte, err error) {
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	for docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, doc)
	}
}

// blank says whether a document has nothing, or comments only.
func blank(doc []byte) bool {
	var content any
	return yaml.Unmarshal(doc, &content) == nil && content == nil
}

// readManifest reads the objects of YAML documents.
func readManifest(data []byte) (out []client.Object, err error) {
	docs, err := documents(data)
	for _, doc := range docs {
		u := &unstructured.Unstructured{}
		if blank(doc) {
			continue
		}
		if err := yaml.Unmarshal(doc, &u.Object); err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, err
}

func unnamespaced(apiVersion, kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetName(name)
	return u
}

func kindOf(x client.Object) string {
	switch x.(type) {
	case *corev1.Secret:
		return "Secret"
	case *corev1.ConfigMap:
		return "ConfigMap"
	case *v1alpha1.VDOConfig:
		return "VDOConfig"
	case *v1alpha1.VsphereCloudConfig:
		return "VsphereCloudConfig"
	case *v1alpha1.DriverBundle:
		return "DriverBundle"
	case *v1alpha1.CompatibilityConfig:
		return "CompatibilityConfig"
	}
	return x.GetObjectKind().GroupVersionKind().Kind
}

// describeObject is "Kind namespace/name".
func describeObject(x client.Object) string {
	if x.GetNamespace() == "" {
		return kindOf(x) + " " + x.GetName()
	}
	return kindOf(x) + " " + x.GetNamespace() + "/" + x.GetName()
}
