package jumphost

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// BMC is bmc.json. Values come from [ParseBMC], or are made to be written.
type BMC struct {
	Proxy string             // URL, with user and password where it has them; "" for none
	Hosts map[string]BMCHost // by the name of the host
}

// BMCHost is one management controller and its login.
type BMCHost struct {
	Address  string `json:"address"` // as spec.bmc.address of the BareMetalHost
	Username string `json:"username"`
	Password string `json:"password"` //nolint:gosec // that is what the file is for

	DisableCertificateVerification bool `json:"disableCertificateVerification,omitempty"`
}

type writtenBMC struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Proxy      string             `json:"proxy,omitempty"`
	Hosts      map[string]BMCHost `json:"hosts"`
}

// ParseBMC reads bmc.json; name is the file's, for errors, which hold no secrets. An
// address is looked at when it is used, so that one host's cannot stop the others.
func ParseBMC(name string, data []byte) (*BMC, error) {
	var in writtenBMC
	if err := decode(name, data, &in); err != nil {
		return nil, err
	}
	p := problems{name: name}
	p.identity(in.APIVersion, in.Kind, BMCKind)
	p.require(len(in.Hosts) <= MaxHosts, "hosts", fmt.Sprintf("there are more than %d", MaxHosts), "divide the cluster")
	if in.Proxy != "" {
		_, err := ParseProxy(in.Proxy)
		p.require(err == nil, "proxy", "is not http://HOST:PORT or https://HOST:PORT", "correct bmc.proxy of the jump host")
	}
	if err := fault.Join(p.errs...); err != nil {
		return nil, err
	}
	return &BMC{Proxy: in.Proxy, Hosts: in.Hosts}, nil
}

// Marshal returns bmc.json, which [ParseBMC] reads back to the same value.
func (b *BMC) Marshal() ([]byte, error) {
	hosts := b.Hosts
	if hosts == nil {
		hosts = map[string]BMCHost{}
	}
	data, err := json.Marshal(writtenBMC{APIVersion, BMCKind, b.Proxy, hosts})
	if err != nil {
		return nil, fmt.Errorf("write the BMCs of the jump host: %w", err)
	}
	return append(data, '\n'), nil
}

// ParseProxy reads a proxy's URL; its errors hold nothing of it.
func ParseProxy(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("not http://HOST:PORT or https://HOST:PORT")
	}
	return u, nil
}

// Redfish is where a host's Redfish service is.
type Redfish struct {
	Endpoint string // https://HOST[:PORT]
	System   string // path of the ComputerSystem; "" where the service has one alone
}

// The schemes of Metal3's addresses whose management controllers speak Redfish; a suffix
// +http or +https says how. Those of ilo4, irmc and the older idrac speak protocols of
// their makers.
var redfishSchemes = []string{"redfish", "redfish-virtualmedia", "redfish-uefihttp", "idrac-redfish", "idrac-virtualmedia", "ilo5-redfish", "ilo5-virtualmedia"}

// Redfish reads the address. It takes what Metal3 takes of BMCs that speak Redfish.
func (h BMCHost) Redfish() (Redfish, error) {
	bad := func(why string) (Redfish, error) {
		return Redfish{}, &fault.Error{
			Reason: fault.InvalidInput, Op: "read", Subject: "the BMC's address", Err: errors.New(why),
			Hint: "power commands need an address such as redfish+https://HOST/redfish/v1/Systems/ID in the BareMetalHost's spec.bmc",
		}
	}
	u, err := url.Parse(h.Address)
	if err != nil {
		return bad("it is not a URL")
	}
	kind, transport, _ := strings.Cut(u.Scheme, "+")
	switch {
	case !slices.Contains(redfishSchemes, kind):
		return bad(fmt.Sprintf("%.40q is not a scheme of Redfish", u.Scheme))
	case transport != "" && transport != "http" && transport != "https":
		return bad(fmt.Sprintf("%.40q is neither http nor https", transport))
	case u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return bad("it is not SCHEME://HOST[:PORT][/PATH]")
	}
	if transport == "" {
		transport = "https"
	}
	return Redfish{Endpoint: transport + "://" + u.Host, System: strings.TrimSuffix(u.Path, "/")}, nil
}
