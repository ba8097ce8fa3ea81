package services

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/certificate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services/haproxy"
)

// Ports of the tenant's hosts.
const (
	apiServerPort = 6443
	kubeletPort   = 10250
)

// Where a load balancer's ConfigMap is in its pod, and what it has.
const (
	balancerDir  = "/etc/sip-load-balancer"
	balancerFile = "haproxy.cfg"
	balancerCA   = "ca.crt"
)

// checkEvery is how often hosts are checked. settle, in seconds, is how long a new load
// balancer takes to have checked all: until its first check, a host counts as fit.
const (
	checkEvery = 3 * time.Second
	settle     = 10
)

// controlPlane leads to the API servers that answer GET /readyz.
func (r *rendering) controlPlane(s airship.LoadBalancerControlPlane) error {
	c := haproxy.Config{
		Listen: haproxy.Ports{First: apiServerPort, Last: apiServerPort}, Port: apiServerPort,
		Check: haproxy.Check{Port: apiServerPort, Path: "/readyz", Every: checkEvery},
	}
	if s.HealthCheck == "TCP" {
		c.Check.Path, c.Check.Plain = "", true
	}
	files := map[string]string{}
	var caErr error
	if s.CASecret != "" {
		var ca Secret
		if ca, caErr = r.secret(".caSecret", s.CASecret, balancerCA); caErr == nil {
			files[balancerCA], caErr = r.authorities(".caSecret", ca[balancerCA])
		}
		c.Check.CAFile = path.Join(balancerDir, balancerCA)
	}
	r.w.ports = []port{{name: "api", service: apiServerPort, node: s.NodePort, pod: apiServerPort}}
	return errors.Join(caErr, r.balancer(c, airship.RoleControlPlane, files))
}

// workers leads each port of the range to the same port of the hosts whose kubelet
// serves, or whose port passes its check.
func (r *rendering) workers(s airship.LoadBalancerWorker) error {
	start, end := s.NodePortRange.Start, s.NodePortRange.End
	if start < 1 || end > 65535 || start > end {
		return r.wrong(".nodePortRange", fmt.Sprintf("%d to %d is not a range of ports", start, end), "write the lower port as start")
	}
	for p := start; p <= end; p++ {
		one := port{name: fmt.Sprintf("port-%d", p), service: p, node: p, pod: p, lastPod: -1}
		if p == start {
			one.lastPod = end
		}
		r.w.ports = append(r.w.ports, one)
	}
	checks := map[uint16]haproxy.Check{}
	for _, one := range s.HealthChecks {
		check := haproxy.Check{Port: uint16(one.Port), Plain: one.Type != "HTTPS", Every: checkEvery} //nolint:gosec // validated
		if one.Type != "TCP" {
			check.Path = cmp.Or(one.Path, "/")
		}
		checks[check.Port] = check
	}
	return r.balancer(haproxy.Config{
		Listen: haproxy.Ports{First: uint16(start), Last: uint16(end)}, //nolint:gosec // looked at above
		Check:  haproxy.Check{Port: kubeletPort, Every: checkEvery}, PortChecks: checks,
	}, airship.RoleWorker, map[string]string{})
}

// balancer is what both have in common. The configuration is in a ConfigMap: it has no
// secrets.
func (r *rendering) balancer(c haproxy.Config, role airship.Role, files map[string]string) error {
	// A Service of IPv6 leads to the pods' IPv6 addresses, and POD_IP can be the other.
	c.Both = strings.Contains(r.w.clusterIP, ":")
	hosts, err := r.hosts(role)
	for _, h := range hosts {
		if len(h.addresses) > 0 {
			c.Servers = append(c.Servers, haproxy.Server{Name: h.name, Addresses: h.addresses})
		}
	}
	if len(hosts) > 0 && len(c.Servers) == 0 {
		err = errors.Join(err, r.wrong(".nodeInterfaceId", fmt.Sprintf("of %d hosts none has a known address there", len(hosts)), "name a network that the hosts' network data has, or mend the data"))
	}
	text, textErr := c.Text()
	if err = errors.Join(err, textErr); err != nil {
		return err
	}
	files[balancerFile] = text
	r.before = append(r.before, r.w.configMap(r.w.name+suffixConfig, files))
	r.w.hash = hashed(nil, []byte(text), []byte(files[balancerCA]))
	ports := tcpPort(int32(c.Listen.First), int32(c.Listen.Last))
	r.w.egress = to(addresses(hosts), ports)
	if !c.Listen.Has(c.Check.Port) {
		r.w.egress = to(addresses(hosts), ports, tcpPort(int32(c.Check.Port), 0))
	}
	r.balancerPod(int32(c.HealthPort()))
	return nil
}

func (r *rendering) balancerPod(healthPort int32) {
	w := &r.w
	w.ports = append(w.ports, port{pod: healthPort, withoutService: true})
	w.replicas, w.memory = 2, "512Mi"
	w.command = haproxy.Command(path.Join(balancerDir, balancerFile))
	w.env = []corev1.EnvVar{{Name: haproxy.PodIP, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}}}
	w.mounts = []mount{{name: "config", path: balancerDir, configMap: w.name + suffixConfig}}
	w.health = health{port: healthPort, live: "/healthz", ready: "/healthz", delay: settle}
	w.stop, w.grace = haproxy.StopCommand(1), int64(haproxy.Drain.Seconds())
}

// authorities are certificates that are trusted, PEM, of a field's Secret, without what is no
// certificate: everybody may read a ConfigMap.
func (r *rendering) authorities(field string, data []byte) (string, error) {
	public, err := certificate.Public(data)
	if err != nil {
		return "", r.wrong(field, balancerCA+" holds no certificate in PEM, or not certificates alone: "+err.Error(), "write the authority into it, and nothing else")
	}
	return string(public), nil
}

// addresses are all of hosts, sorted.
func addresses(hosts []reached) []netip.Addr {
	var out []netip.Addr
	for _, h := range hosts {
		out = append(out, h.addresses...)
	}
	return sortedAddresses(out)
}

// sortedAddresses are all, each once.
func sortedAddresses(all []netip.Addr) []netip.Addr {
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// usable refuses addresses that are not another machine's: network data could otherwise
// lead a tenant's clients into the pod itself, or to what listens on its node.
func (r *rendering) usable(h Host, a netip.Addr) error {
	a = a.Unmap()
	if a.IsValid() && a.Zone() == "" && a.IsGlobalUnicast() {
		return nil
	}
	return r.wrong("", fmt.Sprintf("the host %s/%s has the address %q, which is not one that others reach it by", h.Namespace, h.Name, a), "mend the host's network data")
}
