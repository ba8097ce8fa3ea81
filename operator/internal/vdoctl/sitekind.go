package vdoctl

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// decodeList reads a list, as `kubectl get -o yaml` writes it.
func (o *objects) decodeList(decoder runtime.Decoder, list *corev1.List, doc document) error {
	var errs []error
	for i, item := range list.Items {
		errs = append(errs, o.decode(decoder, document{text: item.Raw, number: doc.number, item: i + 1}))
	}
	return errors.Join(errs...)
}

// siteGroups are the groups of a site's resources: of a kind there that is not known, a slip is
// told, and no resource of somebody else.
var siteGroups = []schema.GroupVersion{v1alpha1.GroupVersion, airship.GroupVersion, {Version: "v1"}}

// unknownKind says what is wrong with a kind that is not known here; nothing of one that is
// somebody else's.
func unknownKind(of metav1.TypeMeta) error {
	gv, err := schema.ParseGroupVersion(of.APIVersion)
	if err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	for _, known := range siteGroups {
		kinds := kindsOf(scheme, known)
		switch {
		case known.Group == gv.Group:
			return &fault.Error{Reason: fault.InvalidInput, Err: fmt.Errorf("there is no kind %q in %s", of.Kind, of.APIVersion), Hint: "correct apiVersion or kind: " + known.String() + " has " + strings.Join(kinds, ", ")}
		case known.Group != "" && slices.Contains(kinds, of.Kind):
			return &fault.Error{Reason: fault.InvalidInput, Err: fmt.Errorf("there is no kind %q in %s", of.Kind, of.APIVersion), Hint: "correct apiVersion: it is of " + known.String()}
		}
	}
	return nil
}

// noList refuses lists of one kind of the operator's groups: of their items nothing would be read.
func noList(of metav1.TypeMeta) error {
	group := of.GroupVersionKind().Group
	own := slices.ContainsFunc(siteGroups, func(known schema.GroupVersion) bool { return known.Group != "" && known.Group == group })
	if !own || !strings.HasSuffix(of.Kind, "List") {
		return nil
	}
	return &fault.Error{Reason: fault.InvalidInput, Err: fmt.Errorf("it is a %s, of which nothing is read", of.Kind),
		Hint: "make each of its items a document, or write `apiVersion: v1` and `kind: List`, with apiVersion and kind in each item"}
}

// typeOf is the type of a kind; nil of one that is not known.
func typeOf(of metav1.TypeMeta) reflect.Type {
	scheme, err := newScheme()
	if err != nil {
		return nil
	}
	return scheme.AllKnownTypes()[of.GroupVersionKind()]
}

// kindsOf are the kinds of a group that a site's file may hold; of Kubernetes' own those that a
// configuration refers to.
func kindsOf(scheme *runtime.Scheme, gv schema.GroupVersion) []string {
	if gv.Group == "" {
		return []string{"ConfigMap", "Secret and others"}
	}
	var out []string
	for kind, of := range scheme.KnownTypes(gv) {
		lists := strings.HasSuffix(kind, "List")
		if !lists && strings.HasPrefix(of.PkgPath(), "github.com/vmware-tanzu/") {
			out = append(out, kind)
		}
	}
	slices.Sort(out)
	return out
}
