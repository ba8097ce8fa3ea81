package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/netdata"
)

// extracted is what was read of one host beside the BareMetalHost itself.
type extracted struct {
	addresses map[string][]netip.Addr // by nodeInterfaceId
	problem   error
}

// network is the network data of a host. That of a free one is remembered for a moment: a SIPCluster that no host
// fits would have that of all hosts read in each of its passes. It refuses a host, and never chooses one.
type network struct {
	version string // of the BareMetalHost
	data    netdata.Data
	subject string
	err     error
	at      time.Time
}

// rememberFor is how long the network data of a free host, and a machine, are remembered.
const rememberFor = 2 * time.Minute

// extract reads, once a pass, what the services need of a host. What is wrong with the data
// is a problem of the host, so that another is taken; an error is that nothing could be
// found out.
func (p *pass) extract(ctx context.Context, h *choose.Host) (*extracted, error) {
	if e := p.extracted[h.Key()]; e != nil {
		return e, nil
	}
	e := &extracted{addresses: map[string][]netip.Addr{}}
	if err := p.addresses(ctx, h, e); err != nil {
		return nil, err
	}
	if e.problem != nil {
		p.recall(h, e)
	}
	p.extracted[h.Key()] = e
	return e, nil
}

func (p *pass) addresses(ctx context.Context, h *choose.Host, e *extracted) error {
	wanted := p.sip.Spec.Services.Interfaces()
	if len(wanted) == 0 {
		return nil
	}
	if h.Spec.NetworkData.Name+h.Spec.MetaData.Name == "" {
		// Cluster API names it when it takes the host, which the labels let it do.
		m, err := p.machineOf(ctx, h)
		for _, id := range wanted {
			if e.addresses[id] = nics(h, id); len(e.addresses[id]) == 0 && m != nil {
				e.addresses[id] = m.addresses
			}
		}
		if fault.ReasonOf(err) == fault.InvalidInput {
			return e.fails(err, h.Consumer())
		}
		return err
	}
	by, _ := h.Holder()
	v, _ := p.networks.Load(h.UID)
	seen, isSeen := v.(network)
	isSeen = isSeen && seen.version == h.ResourceVersion && p.Now().Sub(seen.at) < rememberFor
	if by == (types.NamespacedName{}) && isSeen {
		if err := e.lead(seen, wanted); err != nil {
			return e.fails(err, seen.subject)
		}
	}
	read := p.readNetwork(ctx, h)
	switch fault.ReasonOf(read.err) {
	case "", fault.NotFound, fault.InvalidInput:
		p.networks.Store(h.UID, read)
	}
	return e.fails(e.lead(read, wanted), read.subject)
}

// lead takes from network data, if it could be read, the addresses that are wanted.
func (e *extracted) lead(n network, wanted []string) error {
	err := n.err
	for i := 0; err == nil && i < len(wanted); i++ {
		e.addresses[wanted[i]], err = n.data.Addresses(wanted[i])
	}
	return err
}

// readNetwork reads the Secrets that a host names; the keys are those of Metal3.
func (p *pass) readNetwork(ctx context.Context, h *choose.Host) network {
	n := network{version: h.ResourceVersion, at: p.Now()}
	var documents [2][]byte
	for i, ref := range []corev1.SecretReference{h.Spec.MetaData, h.Spec.NetworkData} {
		if ref.Name == "" {
			continue
		}
		// Who may write a host would have any namespace's Secrets read. Metal3 refuses it too.
		if ref.Namespace != "" && ref.Namespace != h.Namespace {
			n.subject, n.err = h.String(), fault.Errorf(fault.InvalidInput, "", "",
				"put the Secret beside the BareMetalHost, and leave the namespace out",
				"it names the Secret %s/%s, of another namespace", ref.Namespace, ref.Name)
			return n
		}
		name := types.NamespacedName{Namespace: h.Namespace, Name: ref.Name}
		n.subject = "Secret " + name.String()
		if documents[i], n.err = p.document(ctx, name, []string{"metaData", "networkData"}[i]); n.err != nil {
			return n
		}
	}
	n.data, n.err = netdata.Parse(documents[1], documents[0])
	return n
}

// document reads one key of a Secret, or the key value, as Metal3 does.
func (p *pass) document(ctx context.Context, name types.NamespacedName, key string) ([]byte, error) {
	data, err := p.Cluster.Secret(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case data == nil:
		return nil, &fault.Error{Reason: fault.NotFound, Hint: "create it, or correct the BareMetalHost", Err: errors.New("it is not there")}
	}
	for _, k := range []string{key, "value"} {
		if v, ok := data[k]; ok {
			return v, nil
		}
	}
	return nil, &fault.Error{Reason: fault.NotFound, Hint: "put the document under the key " + key, Err: fmt.Errorf("it has no key %s", key)}
}

// recall takes the addresses that the status has for those that could not be read.
func (p *pass) recall(h *choose.Host, e *extracted) {
	was, wanted := p.was(h.Key()), p.sip.Spec.Services.Interfaces()
	on := was.Interfaces
	if len(on) == 0 && len(wanted) == 1 && p.sip.Status.ObservedGeneration == p.sip.Generation {
		on = []airship.InterfaceStatus{{ID: wanted[0], Addresses: was.Addresses}}
	}
	for _, i := range on {
		if len(e.addresses[i.ID]) > 0 {
			continue
		}
		for _, text := range i.Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				e.addresses[i.ID] = append(e.addresses[i.ID], a)
			}
		}
	}
}

// was is what the status says of a host; zero for nothing.
func (p *pass) was(key types.NamespacedName) airship.HostStatus {
	for _, was := range p.sip.Status.Hosts {
		if was.Namespace == key.Namespace && was.Name == key.Name {
			return was
		}
	}
	return airship.HostStatus{}
}

// fails notes a problem of the host, and returns what is none: that the API server did not
// answer. That the operator may not read in a namespace concerns the hosts in it.
func (e *extracted) fails(err error, subject string) error {
	switch fault.ReasonOf(err) {
	case "":
		return nil
	case fault.NotFound, fault.InvalidInput:
	case fault.Forbidden:
		err = &fault.Error{Reason: fault.Forbidden, Err: errors.New("the operator may not read Secrets in this namespace"),
			Hint: "bind ClusterRole vdo-sip-hosts to it by a RoleBinding"}
	default:
		return err
	}
	e.problem = fault.Errorf(fault.ReasonOf(err), "read network data in", subject, fault.HintOf(err), "%w", err)
	return nil
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
