package sipcluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

// HostKind is Metal3's BareMetalHost.
var HostKind = schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}

// Annotations by which Metal3 is told to leave a host alone.
const (
	annotationPaused   = "baremetalhost.metal3.io/paused"
	annotationDetached = "baremetalhost.metal3.io/detached"
	// annotationUnhealthy is Cluster API's, and annotationUnhealthyOld that of its earlier versions.
	annotationUnhealthy    = "capm3.metal3.io/unhealthy"
	annotationUnhealthyOld = "capi.metal3.io/unhealthy"
)

// host is a BareMetalHost as far as it matters here.
type host struct {
	choose.Host
	uid, resourceVersion  string
	seen                  []nic
	allowed               []string             // namespaces that its annotation permits; nil without one
	networkData, metaData types.NamespacedName // Secrets; zero where none is named
}

// nic is an interface that Metal3 saw.
type nic struct{ name, ip string }

// snapshot is all hosts, as they were read at one time.
type snapshot struct {
	hosts map[types.NamespacedName]*host
	live  bool // from the API server itself, in this pass
}

// list returns the hosts to choose from.
func (s snapshot) list() []choose.Host {
	all := make([]choose.Host, 0, len(s.hosts))
	for _, h := range s.hosts {
		all = append(all, h.Host)
	}
	return all
}

// cached returns the hosts as the cache has them. They are not copied: reading them changes
// nothing.
func (r *Reconciler) cached(ctx context.Context) (snapshot, error) {
	list := hostList()
	if err := r.Hosts.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return snapshot{}, listFault(err)
	}
	s := snapshot{hosts: make(map[types.NamespacedName]*host, len(list.Items))}
	s.add(list)
	return s, nil
}

// live returns the hosts as the API server has them now.
func (r *Reconciler) live(ctx context.Context) (snapshot, error) {
	s := snapshot{hosts: map[types.NamespacedName]*host{}, live: true}
	list := hostList()
	if err := pages.Each(ctx, r.Reader, list, func() { s.add(list) }); err != nil {
		return snapshot{}, listFault(err)
	}
	return s, nil
}

func (s snapshot) add(list *unstructured.UnstructuredList) {
	for i := range list.Items {
		h := readHost(&list.Items[i])
		s.hosts[h.Key()] = h
	}
}

func hostList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(HostKind.GroupVersion().WithKind(HostKind.Kind + "List"))
	return list
}

func listFault(err error) error {
	return &fault.Error{
		Reason: fault.Unreachable, Op: "list", Subject: "BareMetalHosts", Err: err,
		Hint: "install Metal3's CRDs, and let the operator list them: `vdo-bundle install-manifests BUNDLE --sip | kubectl apply -f -`",
	}
}

// readHost takes from a BareMetalHost what matters. What has another form than Metal3 writes
// counts as absent.
func readHost(o *unstructured.Unstructured) *host {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(o.Object, path...)
		return s
	}
	notes := o.GetAnnotations()
	_, paused := notes[annotationPaused]
	_, detached := notes[annotationDetached]
	_, unhealthy := notes[annotationUnhealthy]
	_, unhealthyOld := notes[annotationUnhealthyOld]
	secret := func(field string) types.NamespacedName {
		name, namespace := text("spec", field, "name"), text("spec", field, "namespace")
		if name != "" && namespace == "" {
			namespace = o.GetNamespace()
		}
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	return &host{
		Host: choose.Host{
			Namespace: o.GetNamespace(), Name: o.GetName(), Labels: o.GetLabels(),
			Claim: notes[airship.AnnotationClaim], Adopt: notes[airship.AnnotationAdopt] == "true",
			Consumer: consumer(o),
			Deployed: text("spec", "image", "url") != "" || text("spec", "customDeploy", "method") != "",
			State:    text("status", "provisioning", "state"), Operational: text("status", "operationalStatus"),
			ErrorType: text("status", "errorType"),
			Paused:    paused, Detached: detached, Unhealthy: unhealthy || unhealthyOld,
			Deleting:  !o.GetDeletionTimestamp().IsZero(),
			Uncleaned: text("spec", "automatedCleaningMode") == "disabled",
		},
		uid: string(o.GetUID()), resourceVersion: o.GetResourceVersion(), allowed: allowed(notes), seen: seenNICs(o),
		networkData: secret("networkData"), metaData: secret("metaData"),
	}
}

// nics are the addresses that Metal3 saw on the interface of a name, IPv4 first, of a host that is
// in use: one that runs nothing has those of its inspection. "" is the only interface.
func (h *host) nics(id string) []netip.Addr {
	names := map[string]bool{}
	for _, n := range h.seen {
		names[n.name] = true
	}
	if h.Consumer == "" || id == "" && len(names) > 1 {
		return nil
	}
	var all []netip.Addr
	for _, n := range h.seen {
		if a, err := netip.ParseAddr(n.ip); err == nil && a.IsGlobalUnicast() && (id == "" || id == n.name) {
			all = append(all, a.Unmap())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// seenNICs are the interfaces that Metal3 saw.
func seenNICs(o *unstructured.Unstructured) (all []nic) {
	nics, _, _ := unstructured.NestedSlice(o.Object, "status", "hardware", "nics")
	for _, n := range nics {
		if m, ok := n.(map[string]any); ok {
			name, _ := m["name"].(string)
			ip, _ := m["ip"].(string)
			all = append(all, nic{name, ip})
		}
	}
	return all
}

// allowed are the namespaces that a host's annotation permits; nil without one.
func allowed(notes map[string]string) []string {
	text, found := notes[airship.AnnotationAllowedNamespaces]
	if !found {
		return nil
	}
	all := []string{}
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, name)
		}
	}
	return all
}

// consumer names what uses a host.
func consumer(o *unstructured.Unstructured) string {
	ref, found, _ := unstructured.NestedMap(o.Object, "spec", "consumerRef")
	if !found {
		return ""
	}
	text := func(key string) string { s, _ := ref[key].(string); return s }
	return fmt.Sprintf("%s %s/%s", text("kind"), text("namespace"), text("name"))
}

// TrimHost keeps of a BareMetalHost in a cache what [readHost] reads: hardware details and
// images are most of it.
func TrimHost(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	kept := &unstructured.Unstructured{Object: map[string]any{}}
	kept.SetGroupVersionKind(u.GroupVersionKind())
	for _, path := range [][]string{
		{"metadata", "name"}, {"metadata", "namespace"}, {"metadata", "uid"}, {"metadata", "resourceVersion"}, {"metadata", "labels"},
		{"metadata", "deletionTimestamp"}, {"spec", "consumerRef"}, {"spec", "networkData"}, {"spec", "metaData"},
		{"spec", "image", "url"}, {"spec", "customDeploy", "method"}, {"spec", "automatedCleaningMode"},
		{"status", "provisioning", "state"}, {"status", "operationalStatus"}, {"status", "errorType"},
	} {
		if v, found, err := unstructured.NestedFieldNoCopy(u.Object, path...); found && err == nil {
			_ = unstructured.SetNestedField(kept.Object, v, path...)
		}
	}
	var nics []any
	for _, n := range seenNICs(u) {
		nics = append(nics, map[string]any{"name": n.name, "ip": n.ip})
	}
	if len(nics) > 0 {
		_ = unstructured.SetNestedSlice(kept.Object, nics, "status", "hardware", "nics")
	}
	notes := map[string]string{}
	for _, key := range []string{
		airship.AnnotationClaim, airship.AnnotationAdopt, airship.AnnotationAllowedNamespaces,
		annotationPaused, annotationDetached, annotationUnhealthy, annotationUnhealthyOld,
	} {
		if v, found := u.GetAnnotations()[key]; found {
			notes[key] = v
		}
	}
	if len(notes) > 0 {
		kept.SetAnnotations(notes)
	}
	return kept, nil
}
