package plan

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tool applies its objects again and again, and prunes those that leave its source.
type tool struct {
	name     string
	marks    []string // labels and annotations of its objects
	managers []string // prefixes of its field managers
	keep     string   // how to exempt an object from pruning, in the tool's source
}

// tools are those that Helm's and kubectl's marks do not tell. The label app.kubernetes.io/instance,
// by which Argo CD may track too, proves nothing: charts and people set it.
var tools = []tool{
	{"Argo CD", []string{"argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"}, []string{"argocd"},
		"annotate it with argocd.argoproj.io/sync-options: Prune=false,Delete=false"},
	{"Flux", []string{"kustomize.toolkit.fluxcd.io/name"}, []string{"kustomize-controller"},
		"annotate it with kustomize.toolkit.fluxcd.io/prune: disabled"},
	{"Flux", []string{"helm.toolkit.fluxcd.io/name"}, []string{"helm-controller"},
		"set spec.suspend of its HelmRelease"},
	{"kapp", []string{"kapp.k14s.io/app", "kapp.k14s.io/identity"}, []string{"kapp"},
		"annotate it with kapp.k14s.io/delete-strategy: orphan"},
	{"Fleet", []string{"objectset.rio.cattle.io/hash", "objectset.rio.cattle.io/id", "fleet.cattle.io/bundle-id"},
		[]string{"fleet"},
		"set keepResources: true in fleet.yaml"},
}

// marksOn returns the tool's labels and annotations that an object has.
func (t tool) marksOn(o metav1.Object) []string {
	return slices.DeleteFunc(slices.Clone(t.marks), func(m string) bool {
		_, label := o.GetLabels()[m]
		_, annotation := o.GetAnnotations()[m]
		return !label && !annotation
	})
}

// hint is the safe order: a tool prunes an object that leaves its source, unless it is told to keep it.
func (t tool) hint(marks []string) string {
	return fmt.Sprintf("disable pruning in %s first: %s; then take it out of the source of %[1]s, and last remove %[3]s from its metadata",
		t.name, t.keep, strings.Join(marks, ", "))
}

// AppliedBy returns the name of the GitOps tool that applies an object, or "": by the tool's labels
// and annotations, or its field manager.
func AppliedBy(o metav1.Object) string {
	for _, t := range tools {
		if len(t.marksOn(o)) > 0 || slices.ContainsFunc(o.GetManagedFields(), t.writes) {
			return t.name
		}
	}
	return ""
}

func (t tool) writes(m metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(t.managers, func(prefix string) bool { return strings.HasPrefix(m.Manager, prefix) })
}
