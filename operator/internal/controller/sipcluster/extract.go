package sipcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

// extracted is the data of one host beside the BareMetalHost itself.
type extracted struct {
	addresses map[string][]netip.Addr // by nodeInterfaceId
	machine   *machine                // uses the host; nil for none
	problem   error
}

// extract reads the services' data of the chosen hosts. Wrong data of a host is a problem of the host; an error means
// that nothing could be read.
func (p *pass) extract(ctx context.Context) error {
	for r, h := range p.choice.Held() {
		e, err := p.extractHost(ctx, r.Role, h)
		if err != nil {
			return err
		}
		p.extracted[h.Key()] = e
	}
	return p.verify(ctx)
}

func (p *pass) extractHost(ctx context.Context, role airship.Role, h *choose.Host) (*extracted, error) {
	machine, err := p.machineOf(ctx, h)
	if err != nil && fault.ReasonOf(err) != fault.NotFound {
		return nil, err
	}
	e, subject, lacks := &extracted{machine: machine, addresses: map[string][]netip.Addr{}}, h.Consumer(), false
	wanted := p.sip.Spec.Services.Interfaces(role)
	data, networks := cmp.Or(h.Spec.NetworkData.Name, h.Spec.PreprovisioningNetworkDataName), []network(nil)
	if len(wanted) > 0 && data != "" {
		networks, subject, err = p.readNetworks(ctx, h) // early data may be nmstate's alone
		if err != nil && (h.Spec.NetworkData.Name != "" || fault.ReasonOf(err) != fault.NotFound) {
			return e, e.fails(err, subject)
		}
	}
	for _, id := range wanted { // Cluster API sets network data, if at all, when it takes the host
		var lacking error
		if data != "" {
			e.addresses[id], lacking = addressesOn(networks, id)
		}
		if len(e.addresses[id]) == 0 && fault.ReasonOf(lacking) != fault.InvalidInput {
			e.addresses[id] = seen(h, id, machine)
		}
		if len(e.addresses[id]) == 0 {
			lacks, err = true, cmp.Or(err, lacking)
		}
	}
	had := len(p.was(h.Key()).Addresses) > 0
	if lacks && err == nil && data == "" && h.Spec.MetaData.Name != "" && had { // from an earlier version
		subject, err = h.String(), fault.Errorf(fault.NotFound, "", "", "put its addresses into network data",
			"it names meta-data alone, where no addresses are read")
	}
	if gone := h.Spec.NetworkData.Name == "" && fault.ReasonOf(err) == fault.NotFound; !lacks || gone && !had {
		return e, nil // it has no address yet
	}
	return e, e.fails(err, subject)
}

// network is one of the networks of OpenStack network data, which configures a host's operating system: JSON or YAML
// with the list networks. Its faults quote only ids of the document.
type network struct {
	ID        string `json:"id"`
	NetworkID string `json:"network_id"`
	Link      string `json:"link"`
	Address   string `json:"ip_address"` // alone or with a prefix length; "": by DHCP
}

// readNetworks reads the Secret that a host names, and returns its name; the keys are Metal3's.
func (p *pass) readNetworks(ctx context.Context, h *choose.Host) (all []network, subject string, err error) {
	ref := h.Spec.NetworkData
	// Else a user who can write a host could make the operator read any Secret. Metal3 refuses this too.
	if ref.Namespace != "" && ref.Namespace != h.Namespace {
		return nil, h.String(), fault.Errorf(fault.InvalidInput, "", "",
			"put the Secret beside the BareMetalHost, and leave the namespace out",
			"it names the Secret %s/%s, of another namespace", ref.Namespace, ref.Name)
	}
	name := cmp.Or(ref.Name, h.Spec.PreprovisioningNetworkDataName)
	subject = "Secret " + h.Namespace + "/" + name
	data, err := p.Cluster.Data(ctx, h.Namespace, v1alpha1.KeyReference{Secret: name})
	if err != nil {
		return nil, subject, err
	}
	document, ok := data.Values["networkData"]
	if !ok {
		document, ok = data.Values["value"]
	}
	if !ok {
		return nil, subject, fault.Errorf(fault.NotFound, "", "", "create it, or correct the BareMetalHost",
			"it is not there, or has no key networkData")
	}
	all, err = parseNetworks(document)
	return all, subject, err
}

// parseNetworks reads network data. It hides the parser's error, which quotes the document: that may be secret.
func parseNetworks(document []byte) ([]network, error) {
	var doc struct {
		Networks []network `json:"networks"`
	}
	if yaml.Unmarshal(document, &doc) != nil {
		return nil, fault.Errorf(fault.InvalidInput, "", "",
			"write OpenStack network data, with the list networks, in JSON or YAML", "network data cannot be read")
	}
	return doc.Networks, nil
}

// addressesOn returns the addresses for an id, IPv4 first: on networks of that id, else of that network_id, else on
// that link. "" means the only network of each family. Each family has at most one address: a service must know which
// one to use. By DHCP it has none here.
func addressesOn(all []network, id string) ([]netip.Addr, error) {
	named := all
	for _, of := range []func(network) string{
		func(n network) string { return n.ID },
		func(n network) string { return n.NetworkID },
		func(n network) string { return n.Link },
	} {
		named = slices.DeleteFunc(slices.Clone(all), func(n network) bool { return id != "" && of(n) != id })
		if len(named) > 0 {
			break
		}
	}
	var found []netip.Addr
	families := map[bool]int{}
	for _, n := range named {
		if n.Address == "" {
			continue
		}
		text, _, _ := strings.Cut(n.Address, "/")
		a, err := netip.ParseAddr(text)
		if a = a.Unmap(); err != nil || !a.IsGlobalUnicast() || a.Zone() != "" {
			return nil, fault.Errorf(fault.InvalidInput, "", "", "write an IP address as ip_address",
				"network %+.64q: its ip_address is no address that other machines can use", n.ID)
		}
		if !slices.Contains(found, a) {
			found = append(found, a)
			families[a.Is4()]++
		}
	}
	var ids []string
	for _, n := range all {
		ids = append(ids, fmt.Sprintf("%+.64q", n.ID))
	}
	slices.Sort(ids)
	are := cmp.Or(strings.Join(slices.Compact(ids), ", "), "none")
	switch {
	case len(named) == 0:
		return nil, fault.Errorf(fault.NotFound, "", "",
			"name a network with a fixed address in nodeInterfaceId, or add it to the host's data",
			"there is no address on network %+.64q; networks: %s", id, are)
	case max(families[true], families[false]) > 1:
		return nil, fault.Errorf(fault.InvalidInput, "", "",
			"name a network with one address of each family in nodeInterfaceId",
			"network %+.64q has %d addresses; networks: %s", id, len(found), are)
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return found, nil
}

// all returns the addresses that services use, each once.
func (e *extracted) all(wanted []string) (all []string) {
	for _, id := range wanted {
		for _, a := range e.addresses[id] {
			if !slices.Contains(all, a.String()) {
				all = append(all, a.String())
			}
		}
	}
	return all
}

// before returns the addresses of a host in the status.
func (p *pass) before(key types.NamespacedName) (all []netip.Addr) {
	for _, text := range p.was(key).Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// was returns the status of a host; zero for none.
func (p *pass) was(key types.NamespacedName) airship.HostStatus {
	for _, was := range p.sip.Status.Hosts {
		if was.Namespace == key.Namespace && was.Name == key.Name {
			return was
		}
	}
	return airship.HostStatus{}
}

// fails records a problem of the host. It returns other errors, such as an API server that does not answer. Missing
// permissions in a namespace concern only the hosts in it.
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

// seen returns the addresses that Metal3 found on an interface, IPv4 first, else the machine's. Those of a host without
// consumer and image are from its inspection, and do not count. "" means the only interface.
func seen(h *choose.Host, id string, m *machine) (all []netip.Addr) {
	nics := h.Status.Hardware.NICs
	several := slices.ContainsFunc(nics, func(n choose.NIC) bool { return n.Name != nics[0].Name })
	if h.Consumer()+h.Spec.Image.URL+h.Spec.CustomDeploy.Method == "" || id == "" && several {
		nics = nil
	}
	for _, n := range nics {
		if a, err := netip.ParseAddr(n.IP); err == nil && a.IsGlobalUnicast() && (id == "" || id == n.Name) {
			all = append(all, a.Unmap())
		}
	}
	if slices.SortFunc(all, netip.Addr.Compare); len(all) == 0 && m != nil {
		return m.addresses
	}
	return all
}

// labelCluster is Cluster API's label with the name of an object's Cluster.
const labelCluster = "cluster.x-k8s.io/cluster-name"

// machine is the Metal3Machine that uses a host.
type machine struct {
	cluster  types.NamespacedName // of Cluster API
	selected bool                 // its hostSelector names the SIPCluster
	// addresses are at most one of each family, IPv4 first: nothing says which of several to use.
	addresses []netip.Addr
}

// verify finds hosts that the machine of another Cluster uses: Cluster API takes any matching host in its namespace.
// Services do not forward to them. Consumers of other kinds are not verified. It also finds hosts of one address, also
// in the status of other SIPClusters.
func (p *pass) verify(ctx context.Context) error {
	expected := p.expectedCluster()
	p.clusterName = expected.Name
	p.foreign, p.shared = map[types.NamespacedName]string{}, map[types.NamespacedName]string{}
	owner := map[string]types.NamespacedName{}
	for r, h := range p.choice.Held() {
		if m := p.extracted[h.Key()].machine; m != nil && m.cluster != expected {
			p.foreign[h.Key()] = fmt.Sprintf("services leave it out: %s of Cluster %q uses it", h.Consumer(), m.cluster.Name)
		}
		for _, a := range p.extracted[h.Key()].all(p.sip.Spec.Services.Interfaces(r.Role)) {
			if other, taken := owner[a]; taken {
				p.shared[h.Key()] = fmt.Sprintf("host %s has its address %s too", other, a)
			}
			owner[a] = h.Key()
		}
	}
	var all airship.SIPClusterList
	if err := p.Hosts.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return asked("list", "SIPClusters", err)
	}
	for i := range all.Items {
		o := client.ObjectKeyFromObject(&all.Items[i])
		for _, h := range all.Items[i].Status.Hosts {
			for _, a := range h.Addresses {
				mine, taken := owner[a]
				if taken && o != p.key && (mine != types.NamespacedName{Namespace: h.Namespace, Name: h.Name}) {
					text := fmt.Sprintf("a host of SIPCluster %s has its address %s too", o, a)
					p.shared[mine] = min(cmp.Or(p.shared[mine], text), text) // the same in each reconcile
				}
			}
		}
	}
	return nil
}

// expectedCluster returns the Cluster of machines that select the SIPCluster's hosts, else of all machines. If the
// spec names one, only Clusters of that name count. Among several, the name in the status, then the SIPCluster's
// namespace and then most hosts win.
func (p *pass) expectedCluster() types.NamespacedName {
	name := p.sip.Spec.ClusterName
	all, selected := map[types.NamespacedName]int{}, map[types.NamespacedName]int{}
	for _, e := range p.extracted {
		m := e.machine
		if m == nil || (name != "" && m.cluster.Name != name) {
			continue
		}
		all[m.cluster]++
		if m.selected {
			selected[m.cluster]++
		}
	}
	if len(selected) == 0 {
		selected = all
	}
	if len(selected) > 1 {
		name = cmp.Or(name, p.sip.Status.ClusterName)
		maps.DeleteFunc(selected, func(c types.NamespacedName, _ int) bool { return c.Name != name })
	}
	if len(selected) == 0 {
		return types.NamespacedName{Name: cmp.Or(name, p.sip.Status.ClusterName)}
	}
	weight := func(c types.NamespacedName) int {
		if c.Namespace == p.key.Namespace {
			return math.MaxInt
		}
		return selected[c]
	}
	return slices.MinFunc(slices.Collect(maps.Keys(selected)), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), strings.Compare(a.Namespace, b.Namespace))
	})
}

// machineOf reads the Metal3Machine that uses a host; nil if none does. The fault of a missing one has the reason
// NotFound.
func (p *pass) machineOf(ctx context.Context, h *choose.Host) (*machine, error) {
	ref := h.Spec.ConsumerRef
	kind := ref.GroupVersionKind()
	if kind.Group != "infrastructure.cluster.x-k8s.io" || kind.Kind != "Metal3Machine" {
		return nil, nil //nolint:nilnil // another kind
	}
	o := &unstructured.Unstructured{}
	served, err := p.Client.RESTMapper().RESTMapping(kind.GroupKind()) // the reference may name an older version
	if err == nil {
		o.SetGroupVersionKind(served.GroupVersionKind)
		err = p.Reader.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, o)
	}
	switch {
	case apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err): // the path, not the object
		return nil, fault.Errorf(fault.Unreachable, "read", h.Consumer(), "restart the operator", "its version is no longer served")
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, fault.Errorf(fault.NotFound, "", "", "correct the host's consumerRef", "it is not there")
	case err != nil:
		return nil, asked("read", h.Consumer(), err)
	}
	selector, _, _ := unstructured.NestedStringMap(o.Object, "spec", "hostSelector", "matchLabels") //nolint:errcheck // else none
	selects, _ := choose.HolderByLabels(selector)
	m := &machine{selected: selects == p.key}
	m.cluster.Namespace, m.cluster.Name = ref.Namespace, o.GetLabels()[labelCluster]
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "addresses") //nolint:errcheck // else none
	families := map[bool][]netip.Addr{}                                    // by whether it is IPv4
	for _, one := range all {
		entry, _ := one.(map[string]any)
		text, _ := entry["address"].(string)
		a, err := netip.ParseAddr(text)
		if a = a.Unmap(); err == nil && entry["type"] == "InternalIP" && a.IsGlobalUnicast() {
			families[a.Is4()] = append(families[a.Is4()], a)
		}
	}
	for _, family := range []bool{true, false} {
		if len(families[family]) == 1 {
			m.addresses = append(m.addresses, families[family]...)
		}
	}
	return m, nil
}
