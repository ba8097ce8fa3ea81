package sipcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

// errCached reports a pending change in a reconcile with hosts from the cache. The reconcile is repeated with hosts
// from the API server.
var errCached = fmt.Errorf("hosts are from a cache: %w", fault.ErrOutdated)

func (p *pass) gather(ctx context.Context) error {
	all, err := p.readHosts(ctx, p.live)
	if err == nil {
		err = p.choose(ctx, all)
	}
	switch {
	case err != nil || !p.changes():
		return err
	case !p.live:
		return errCached
	}
	return p.claim(ctx, all)
}

// readHosts returns the hosts from the cache, not copied, or live from the API server.
func (r *Reconciler) readHosts(ctx context.Context, live bool) (all []*choose.Host, err error) {
	list := &choose.BareMetalHostList{}
	add := func(h *choose.BareMetalHost) { all = append(all, &choose.Host{BareMetalHost: h}) }
	if live {
		err = pages.Each(ctx, r.Reader, list, add)
	} else if err = r.Hosts.List(ctx, list, client.UnsafeDisableDeepCopy); err == nil {
		for i := range list.Items {
			add(&list.Items[i])
		}
	}
	if err != nil {
		return nil, fault.Errorf(fault.Unreachable, "list", "BareMetalHosts",
			"install Metal3's CRDs, and "+manifestsHint, "%w", err)
	}
	return all, nil
}

func (p *pass) choose(ctx context.Context, all []*choose.Host) (err error) {
	permits := func(*choose.Host) bool { return true } // a release needs no permission
	if !p.cluster.Deleting {
		if permits, err = p.permits(ctx); err != nil {
			return err
		}
	}
	p.permitted = permits
	for _, h := range all {
		h.Permitted = permits(h) || permitsItself(h)
		h.Recovering = p.recovering(h)
	}
	if p.choice, err = choose.Choose(p.cluster, p.sip.Spec.Nodes, all); err != nil {
		return because(airship.ReasonUnschedulable, err)
	}
	p.chosen = true
	return nil
}

// permitsItself reports whether a host's claim permits it too, since no annotation does. An administrator wrote that
// claim, or an earlier version, which permitted every namespace.
func permitsItself(h *choose.Host) bool { return h.Adopts() && allowed(h) == nil }

// clusterOf returns the fields of a SIPCluster that choose hosts.
func clusterOf(sip object) choose.Cluster {
	return choose.Cluster{
		NamespacedName: client.ObjectKeyFromObject(sip), UID: sip.UID,
		Deleting:     !sip.DeletionTimestamp.IsZero(),
		ReleaseInUse: sip.Annotations[airship.AnnotationReleaseInUse] == "true",
	}
}

// failedSince returns when a host was first seen failed; zero if it has not failed.
func (p *pass) failedSince(h *choose.Host) time.Time {
	if h.Failed() == "" {
		return time.Time{}
	}
	if since := p.was(h.Key()).FailedSince; since != nil && !since.After(p.Now()) { // else the clock went back
		return since.Time
	}
	return p.Now()
}

// recovering reports whether a host in error may recover by itself, and sets when to look again.
func (p *pass) recovering(h *choose.Host) bool {
	if !h.MayRecover() || !p.cluster.Holds(h) {
		return false
	}
	left := p.Grace - p.Now().Sub(p.failedSince(h))
	if left > 0 && (p.graceEnds == 0 || left < p.graceEnds) {
		p.graceEnds = left
	}
	return left > 0
}

// changes reports whether hosts have to be claimed or released.
func (p *pass) changes() bool {
	for r, h := range p.choice.Held() {
		if h.Claim() != p.cluster.Claim(r.Role) {
			return true
		}
	}
	return len(p.choice.Leaving()) > 0
}

// claim claims all chosen hosts, if the SIPCluster exists: a deleted one would never release them. If an admission
// webhook refuses a free host, it chooses again among the others.
func (p *pass) claim(ctx context.Context, all []*choose.Host) error {
	if err := p.exists(ctx, "claim hosts for"); err != nil {
		return err
	}
	for r, h := range p.choice.Held() {
		claim := p.cluster.Claim(r.Role)
		if h.Claim() == claim {
			continue
		}
		notes := map[string]any{airship.AnnotationClaim: claim}
		if permitsItself(h) && !p.permitted(h) {
			notes[airship.AnnotationAllowedNamespaces] = p.key.Namespace
		}
		err := because(airship.ReasonUnableToApplyLabels, p.patch(ctx, h, map[string]any{"annotations": notes}, nil))
		reason := fault.ReasonOf(err)
		if slices.Contains(r.Take, h) && (reason == fault.Refused || reason == fault.Incompatible) {
			p.refused = errors.Join(p.refused, err)
			all = slices.DeleteFunc(all, func(o *choose.Host) bool { return o == h })
			if p.choice, err = choose.Choose(p.cluster, p.sip.Spec.Nodes, all); err == nil {
				return p.claim(ctx, all)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// exists fails if the API server's SIPCluster is not that of the reconcile: gone, replaced, or being deleted since.
func (p *pass) exists(ctx context.Context, op string) error {
	now := &airship.SIPCluster{}
	err := p.Reader.Get(ctx, p.key, now)
	if err == nil && (now.UID != p.sip.UID || now.DeletionTimestamp.IsZero() != p.sip.DeletionTimestamp.IsZero()) {
		err = apierrors.NewConflict(schema.GroupResource{}, p.key.Name, errors.New("it is another one"))
	}
	return asked(op, "SIPCluster "+p.key.String(), err)
}

// patch merges metadata and a spec into a host, unless the host changed since it was read.
func (r *Reconciler) patch(ctx context.Context, h *choose.Host, metadata, spec map[string]any) error {
	metadata["uid"], metadata["resourceVersion"] = h.UID, h.ResourceVersion
	change := map[string]any{"metadata": metadata}
	if spec != nil {
		change["spec"] = spec
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	o := &choose.BareMetalHost{}
	o.Namespace, o.Name = h.Namespace, h.Name
	err = r.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(cluster.FieldManager))
	if err != nil {
		return asked("change", h.String(), err)
	}
	h.BareMetalHost = o
	return nil
}

// deployPolicy is the spec of a HostDeployPolicy; all constraints have to hold.
type deployPolicy struct {
	HostClaimNamespaces *struct {
		Names       []string `json:"names"`
		NameMatches string   `json:"nameMatches"`
		HasLabels   []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"hasLabels"`
	} `json:"hostClaimNamespaces"`
}

// permits returns whether the SIPCluster may hold a host; HostClaims can replace it. It denies by default. A host's own
// annotation decides, else a HostDeployPolicy in the host's namespace that accepts the SIPCluster's namespace, by
// Metal3's rules. If Metal3 lacks that kind, only annotations permit.
func (p *pass) permits(ctx context.Context) (func(*choose.Host) bool, error) {
	accepting := map[string]bool{} // namespaces with a policy that accepts
	var ns corev1.Namespace
	var invalid fault.List
	namespace := p.key.Namespace
	read := func(o *unstructured.Unstructured) {
		spec, _, _ := unstructured.NestedMap(o.Object, "spec")
		var policy deployPolicy
		err, accepts := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &policy), false
		if err == nil {
			accepts, err = policy.accepts(namespace, ns.Labels)
		}
		if err != nil {
			subject := "HostDeployPolicy " + client.ObjectKeyFromObject(o).String()
			invalid.Add(fault.Errorf(fault.InvalidInput, "read", subject, "have its owner correct it", "%w", err))
		}
		accepting[o.GetNamespace()] = accepting[o.GetNamespace()] || accepts
	}
	if err := p.Reader.Get(ctx, types.NamespacedName{Name: namespace}, &ns); err != nil {
		return nil, asked("read", "namespace "+namespace, err)
	}
	policies, err := p.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: "metal3.io", Kind: "HostDeployPolicy"})
	if err == nil {
		err = pages.Each(ctx, p.Reader, pages.Empty(policies.GroupVersionKind), read)
	}
	p.invalid = invalid.Join("read", "HostDeployPolicies")
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, fault.Errorf(fault.Unreachable, "read", "HostDeployPolicies", manifestsHint, "%w", err)
	}
	return func(h *choose.Host) bool {
		if named := allowed(h); named != nil {
			return slices.Contains(named, namespace)
		}
		return accepting[h.Namespace]
	}, nil
}

// accepts reports whether a policy accepts a namespace with these labels. A policy without constraints accepts nothing;
// an invalid expression is an error.
func (p deployPolicy) accepts(namespace string, labels map[string]string) (bool, error) {
	c := p.HostClaimNamespaces
	if c == nil || c.Names != nil && !slices.Contains(c.Names, namespace) {
		return false, nil
	}
	matches, err := regexp.MatchString(c.NameMatches, namespace)
	if err != nil {
		return false, fmt.Errorf("spec.hostClaimNamespaces.nameMatches: %w", err)
	}
	for _, want := range c.HasLabels {
		value, ok := labels[want.Name]
		matches = matches && ok && (want.Value == "" || value == want.Value)
	}
	return matches, nil
}

// allowed returns the namespaces that a host's annotation permits; nil without one.
func allowed(h *choose.Host) []string {
	text, found := h.Annotations[airship.AnnotationAllowedNamespaces]
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
