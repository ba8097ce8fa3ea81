package sipcluster

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

// hosts are all that there are, as they were read at one time.
type hosts map[types.NamespacedName]*choose.Host

// list returns the hosts to choose from.
func (s hosts) list() []choose.Host {
	all := make([]choose.Host, 0, len(s))
	for _, h := range s {
		all = append(all, *h)
	}
	return all
}

// readHosts returns the hosts as the cache has them, which are not copied, or as the API server has them now.
func (r *Reconciler) readHosts(ctx context.Context, live bool) (hosts, error) {
	s, list := hosts{}, &choose.BareMetalHostList{}
	add := func() {
		for i := range list.Items {
			h := &choose.Host{BareMetalHost: &list.Items[i]}
			s[h.Key()] = h
		}
	}
	var err error
	if live {
		err = pages.Each(ctx, r.Reader, list, add)
	} else if err = r.Hosts.List(ctx, list, client.UnsafeDisableDeepCopy); err == nil {
		add()
	}
	if err != nil {
		return nil, &fault.Error{
			Reason: fault.Unreachable, Op: "list", Subject: "BareMetalHosts", Err: err,
			Hint: "install Metal3's CRDs, and " + manifestsHint,
		}
	}
	return s, nil
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

// nics are the addresses that Metal3 saw on the interface of a name, IPv4 first, of a host that is
// in use: one that runs nothing has those of its inspection. "" is the only interface.
func nics(h *choose.Host, id string) []netip.Addr {
	seen := h.Status.Hardware.NICs
	several := slices.ContainsFunc(seen, func(n choose.NIC) bool { return n.Name != seen[0].Name })
	if h.Consumer() == "" || id == "" && several {
		return nil
	}
	var all []netip.Addr
	for _, n := range seen {
		if a, err := netip.ParseAddr(n.IP); err == nil && a.IsGlobalUnicast() && (id == "" || id == n.Name) {
			all = append(all, a.Unmap())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}
