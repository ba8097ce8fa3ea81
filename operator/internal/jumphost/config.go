package jumphost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Identification of the files, and where they are.
const (
	APIVersion = "vdo.vmware.com/jumphost/v1"
	ConfigKind = "JumpHost"

	Dir        = "/etc/vdo-jumphost" // what follows is below it
	ConfigFile = "config/config.json"
	HostKeys   = "host-keys"
	NodeKeys   = "node-keys"
	KnownHosts = "known_hosts" // in NodeKeys
)

// Bounds of what is read.
const (
	MaxFileSize       = 2 << 20 // bytes; a ConfigMap or Secret has less
	MaxHosts          = 5000
	MaxAuthorizedKeys = 1000
	MaxAddresses      = 16 // of a host
	maxPorts          = 100
	maxPort           = 65535
	maxName           = 253
	minRSABits        = 2048
)

// Config is config.json. Values come from [ParseConfig].
type Config struct {
	Cluster string // of the SIPCluster: namespace/name
	Keys    []Key
	Ports   []Ports
	Hosts   []Host // sorted by name
}

// Key is one that may log in.
type Key struct {
	Public  ssh.PublicKey
	Comment string
}

// Ports is the ports from First to Last, both included.
type Ports struct{ First, Last uint16 }

// Host is one of the tenant's.
type Host struct {
	Name      string
	Role      string // for people
	Addresses []netip.Addr
}

// written is config.json as it is in the file.
type written struct {
	APIVersion     string        `json:"apiVersion"`
	Kind           string        `json:"kind"`
	Cluster        string        `json:"cluster"`
	AuthorizedKeys []string      `json:"authorizedKeys"`
	Ports          []string      `json:"ports"`
	Hosts          []writtenHost `json:"hosts"`
}

type writtenHost struct {
	Name      string       `json:"name"`
	Role      string       `json:"role,omitempty"`
	Addresses []netip.Addr `json:"addresses"`
}

// ParseConfig reads config.json; name is the file's, for errors. It reports all problems
// together.
func ParseConfig(name string, data []byte) (*Config, error) {
	var in written
	if err := decode(name, data, &in); err != nil {
		return nil, err
	}
	p := problems{name: name}
	p.identity(in.APIVersion, in.Kind, ConfigKind)
	p.require(len(in.Cluster) <= 2*maxName+1 && !strings.ContainsFunc(in.Cluster, isControl), "cluster", "is not NAMESPACE/NAME", "write the SIPCluster's namespace and name")
	c := &Config{Cluster: in.Cluster, Keys: p.keys(in.AuthorizedKeys), Ports: p.ports(in.Ports), Hosts: p.hosts(in.Hosts)}
	if err := fault.Join(p.errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// Marshal returns config.json, which [ParseConfig] reads back to the same value.
func (c *Config) Marshal() ([]byte, error) {
	out := written{APIVersion: APIVersion, Kind: ConfigKind, Cluster: c.Cluster, AuthorizedKeys: []string{}, Ports: []string{}, Hosts: []writtenHost{}}
	for _, k := range c.Keys {
		line := strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(k.Public)), "\n")
		out.AuthorizedKeys = append(out.AuthorizedKeys, strings.TrimSpace(line+" "+k.Comment))
	}
	for _, p := range c.Ports {
		out.Ports = append(out.Ports, p.String())
	}
	for _, h := range c.Hosts {
		out.Hosts = append(out.Hosts, writtenHost(h))
	}
	data, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the jump host's configuration: %w", err)
	}
	return append(data, '\n'), nil
}

// String returns "22" or "30000-32767".
func (p Ports) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// Host finds a host by its name; upper and lower case are the same.
func (c *Config) Host(name string) (Host, bool) {
	i, ok := slices.BinarySearchFunc(c.Hosts, strings.ToLower(name), func(h Host, n string) int { return strings.Compare(h.Name, n) })
	if !ok {
		return Host{}, false
	}
	return c.Hosts[i], true
}

// Find finds the host that a client names by name or address, with the addresses that
// are meant: the one named, else all of the host.
func (c *Config) Find(destination string) (Host, []netip.Addr, bool) {
	if h, ok := c.Host(destination); ok {
		return h, h.Addresses, true
	}
	a, err := netip.ParseAddr(destination)
	if err != nil || a.Zone() != "" {
		return Host{}, nil, false
	}
	a = a.Unmap()
	for _, h := range c.Hosts {
		if slices.Contains(h.Addresses, a) {
			return h, []netip.Addr{a}, true
		}
	}
	return Host{}, nil, false
}

// Allows tells whether a port of the hosts may be connected to.
func (c *Config) Allows(port uint32) bool {
	return slices.ContainsFunc(c.Ports, func(p Ports) bool { return uint32(p.First) <= port && port <= uint32(p.Last) })
}

// Authorized finds an authorised key.
func (c *Config) Authorized(key ssh.PublicKey) (Key, bool) {
	blob := key.Marshal()
	i := slices.IndexFunc(c.Keys, func(k Key) bool { return bytes.Equal(k.Public.Marshal(), blob) })
	if i < 0 {
		return Key{}, false
	}
	return c.Keys[i], true
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func decode(name string, data []byte, to any) error {
	bad := func(err error) error {
		return &fault.Error{
			Reason: fault.InvalidInput, Op: "read", Subject: name, Err: err,
			Hint: "the SIP controller writes the file: see which object is mounted there",
		}
	}
	if len(data) > MaxFileSize {
		return bad(fmt.Errorf("is larger than %d bytes", MaxFileSize))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return bad(withoutContent(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad(errors.New("there is something after the JSON object"))
	}
	return nil
}

// withoutContent drops what the JSON decoder quotes of a file that may hold secrets.
func withoutContent(err error) error {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		return fmt.Errorf("%s: is not of the expected type %s", wrongType.Field, wrongType.Type)
	case errors.As(err, &syntax):
		return fmt.Errorf("is not JSON, at byte %d", syntax.Offset)
	case strings.HasPrefix(err.Error(), "json: unknown field"):
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return errors.New("is not the JSON that is expected")
}

// problems collects what is wrong with a file.
type problems struct {
	name string
	errs []error
}

func (p *problems) require(ok bool, key, why, hint string) {
	if !ok {
		p.errs = append(p.errs, &fault.Error{
			Reason: fault.InvalidInput, Op: "read", Subject: p.name, Err: fmt.Errorf("%s: %s", key, why), Hint: hint,
		})
	}
}

func (p *problems) identity(apiVersion, kind, want string) {
	p.require(apiVersion == APIVersion, "apiVersion", fmt.Sprintf("%.80q is not %s", apiVersion, APIVersion), "use operator and jump host of one release")
	p.require(kind == want, "kind", fmt.Sprintf("%.80q is not %s", kind, want), "see which object is mounted there")
}

func (p *problems) keys(lines []string) []Key {
	p.require(len(lines) <= MaxAuthorizedKeys, "authorizedKeys", fmt.Sprintf("there are more than %d", MaxAuthorizedKeys), "leave out keys that are no longer used")
	var out []Key
	for i, line := range lines[:min(len(lines), MaxAuthorizedKeys)] {
		k, err := ParseAuthorizedKey(line)
		if err != nil {
			p.require(false, fmt.Sprintf("authorizedKeys[%d]", i), err.Error(), fault.HintOf(err))
			continue
		}
		out = append(out, k)
	}
	return out
}

func (p *problems) ports(texts []string) []Ports {
	p.require(len(texts) <= maxPorts, "ports", fmt.Sprintf("there are more than %d", maxPorts), "join them to ranges")
	var out []Ports
	for i, text := range texts[:min(len(texts), maxPorts)] {
		from, to, isRange := strings.Cut(text, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		ok := err1 == nil && err2 == nil && 0 < first && first <= last && last <= maxPort
		p.require(ok, fmt.Sprintf("ports[%d]", i), fmt.Sprintf("%.40q is neither a port nor a range", text), "write 22 or 30000-32767")
		out = append(out, Ports{uint16(first), uint16(last)}) //nolint:gosec // parsed as 16 bits
	}
	return out
}

var subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func (p *problems) hosts(in []writtenHost) []Host {
	p.require(len(in) <= MaxHosts, "hosts", fmt.Sprintf("there are more than %d", MaxHosts), "divide the cluster")
	names, addresses := map[string]bool{}, map[netip.Addr]string{}
	var out []Host
	for i, h := range in[:min(len(in), MaxHosts)] {
		key := fmt.Sprintf("hosts[%d]", i)
		_, isAddress := netip.ParseAddr(h.Name)
		p.require(len(h.Name) <= maxName && subdomain.MatchString(h.Name) && isAddress != nil, key+".name",
			fmt.Sprintf("%.80q is not a name of a host", h.Name), "write a DNS subdomain in lower case, as BareMetalHosts are named")
		p.require(!names[h.Name], key+".name", fmt.Sprintf("%.80q is there twice", h.Name), "write NAME.NAMESPACE where two namespaces have it")
		p.require(len(h.Role) <= maxName && !strings.ContainsFunc(h.Role, isControl), key+".role", "is not a word", "write ControlPlane or Worker")
		p.require(len(h.Addresses) <= MaxAddresses, key+".addresses", fmt.Sprintf("there are more than %d", MaxAddresses), "write those that clients use")
		names[h.Name] = true
		out = append(out, Host{Name: h.Name, Role: h.Role, Addresses: p.addresses(key, h, addresses)})
	}
	slices.SortFunc(out, func(a, b Host) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// addresses refuses what is nobody's own address: a forward to it would reach the jump
// host itself, or many.
func (p *problems) addresses(key string, h writtenHost, seen map[netip.Addr]string) []netip.Addr {
	var out []netip.Addr
	for j, a := range h.Addresses[:min(len(h.Addresses), MaxAddresses)] {
		at := fmt.Sprintf("%s.addresses[%d]", key, j)
		a = a.Unmap()
		usable := a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.IsLinkLocalUnicast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
		p.require(usable, at, fmt.Sprintf("%s is not an address of a host", a), "write the host's address on the network of nodeInterfaceId")
		p.require(seen[a] == "", at, fmt.Sprintf("%s is also that of %s", a, seen[a]), "give every host addresses of its own")
		seen[a] = h.Name
		out = append(out, a)
	}
	return out
}

// File returns the path of one of the files below a folder, [Dir] in a pod.
func File(dir, name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
