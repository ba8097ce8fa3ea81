package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/netdata"
)

// extracted is what was read of one host beside the BareMetalHost itself.
type extracted struct {
	addresses map[string][]netip.Addr // by nodeInterfaceId
	problem   error
	reason    choose.Reason
}

// extract reads, once a pass, what the services need of a host. What is wrong with the data
// is a problem of the host, so that another is taken; an error is that nothing could be
// found out.
func (p *pass) extract(ctx context.Context, h *host) (*extracted, error) {
	if e := p.extracted[h.Key()]; e != nil {
		return e, nil
	}
	e := &extracted{addresses: map[string][]netip.Addr{}}
	if err := p.addresses(ctx, h, e); err != nil {
		return nil, err
	}
	p.extracted[h.Key()] = e
	return e, nil
}

func (p *pass) addresses(ctx context.Context, h *host, e *extracted) error {
	wanted := p.sip.Spec.Services.Interfaces()
	if len(wanted) == 0 {
		return nil
	}
	if h.networkData.Name == "" && h.metaData.Name == "" {
		// Cluster API names it when it takes the host, which the labels let it do.
		for _, id := range wanted {
			e.addresses[id] = h.nics(id)
		}
		return nil
	}
	if by, _ := h.Holder(); by == (types.NamespacedName{}) {
		if seen, found := p.networks.get(h, p.Now()); found && e.lead(seen.data, seen.err, wanted) != nil {
			return e.fails(e.lead(seen.data, seen.err, wanted), choose.ReasonNetworkData, "read network data in", seen.subject)
		}
	}
	data, subject, err := p.networkData(ctx, h)
	switch fault.ReasonOf(err) {
	case "", fault.NotFound, fault.InvalidInput:
		p.networks.put(h, seenNetwork{data: data, subject: subject, err: err}, p.Now())
	}
	return e.fails(e.lead(data, err, wanted), choose.ReasonNetworkData, "read network data in", subject)
}

// lead takes from network data, if it could be read, the addresses that are wanted.
func (e *extracted) lead(data netdata.Data, err error, wanted []string) error {
	for _, id := range wanted {
		if err != nil {
			break
		}
		var addresses []netip.Addr
		if addresses, err = data.Addresses(id); err == nil {
			e.addresses[id] = addresses
		}
	}
	return err
}

// networkData reads the Secrets that a host names; the keys are those of Metal3.
func (p *pass) networkData(ctx context.Context, h *host) (netdata.Data, string, error) {
	for _, s := range []types.NamespacedName{h.networkData, h.metaData} {
		// Who may write a host would have any namespace's Secrets read. Metal3 refuses it too.
		if s.Name != "" && s.Namespace != h.Namespace {
			return netdata.Data{}, h.String(), &fault.Error{Reason: fault.InvalidInput, Hint: "put the Secret beside the BareMetalHost, and leave the namespace out",
				Err: fmt.Errorf("it names the Secret %s, of another namespace", s)}
		}
	}
	subject := "Secret " + h.networkData.String()
	network, err := p.document(ctx, h.networkData, "networkData")
	if err != nil {
		return netdata.Data{}, subject, err
	}
	meta, err := p.document(ctx, h.metaData, "metaData")
	if err != nil {
		return netdata.Data{}, "Secret " + h.metaData.String(), err
	}
	data, err := netdata.Parse(network, meta)
	return data, subject, err
}

// document reads one key of a Secret, or the key value, as Metal3 does.
func (p *pass) document(ctx context.Context, name types.NamespacedName, key string) ([]byte, error) {
	if name.Name == "" {
		return nil, nil
	}
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

// complete takes known addresses for those that could not be read.
func (e *extracted) complete(known map[string][]netip.Addr, wanted []string) {
	for _, id := range wanted {
		if len(e.addresses[id]) == 0 && len(known[id]) > 0 {
			e.addresses[id] = known[id]
		}
	}
}

// fails notes a problem of the host, and returns what is none: that the API server did not
// answer. That the operator may not read in a namespace concerns the hosts in it.
func (e *extracted) fails(err error, reason choose.Reason, op, subject string) error {
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
	if e.problem != nil {
		return nil //nolint:nilerr // the first counts
	}
	e.reason = reason
	e.problem = &fault.Error{Reason: fault.ReasonOf(err), Op: op, Subject: subject, Err: err, Hint: fault.HintOf(err)}
	return nil
}
