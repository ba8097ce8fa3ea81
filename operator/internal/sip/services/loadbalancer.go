package services

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services/haproxy"
)

// Ports of the tenant's hosts.
const (
	apiServerPort = 6443
	kubeletPort   = 10250
)

// maxPorts of all load balancers of workers.
const maxPorts = 1000

// Where a load balancer's ConfigMap is in its pod, and what it has.
const (
	balancerDir  = "/etc/sip-load-balancer"
	balancerFile = "haproxy.cfg"
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
	r.serve("api", apiServerPort, s.NodePort, apiServerPort)
	return r.balancer(c, airship.RoleControlPlane)
}

// workers leads each port of the range to the same port of the hosts whose kubelet
// serves, or whose port passes its check.
func (r *rendering) workers(s airship.LoadBalancerWorker) error {
	start, end := s.NodePortRange.Start, s.NodePortRange.End
	total := int32(0) // a rule of the CustomResourceDefinition would block writes of stored resources
	for _, one := range r.in.Spec.LoadBalancerWorker {
		total += one.NodePortRange.End - one.NodePortRange.Start + 1
	}
	if total > maxPorts {
		return r.wrong(".nodePortRange", fmt.Sprintf("the ranges of loadBalancerWorker have %d ports together, more than %d", total, maxPorts),
			"write fewer: all tenants share the ports of the nodes")
	}
	for p := start; p <= end; p++ {
		r.serve(fmt.Sprintf("port-%d", p), p, p, p)
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
		Listen: haproxy.Ports{First: uint16(start), Last: uint16(end)}, //nolint:gosec // validated
		Check:  haproxy.Check{Port: kubeletPort, Every: checkEvery}, PortChecks: checks,
	}, airship.RoleWorker)
}

// balancer is what both have in common. The configuration is in a ConfigMap: it has no
// secrets.
func (r *rendering) balancer(c haproxy.Config, role airship.Role) error {
	if err := r.place(role); err != nil {
		return err
	}
	hosts := slices.DeleteFunc(r.hosts, func(h jumphost.Host) bool {
		return len(h.Addresses) == 0
	})
	for _, h := range hosts {
		c.Servers = append(c.Servers, haproxy.Server{Name: h.Name + "." + h.Namespace, Addresses: h.Addresses})
	}
	listens := tcpPort(int32(c.Listen.First), int32(c.Listen.Last))
	r.roll()
	r.ingress = []networkingv1.NetworkPolicyPort{listens, tcpPort(haproxy.HealthPort, 0)}
	ports := []networkingv1.NetworkPolicyPort{listens}
	if c.Check.Port != c.Listen.First {
		ports = append(ports, tcpPort(int32(c.Check.Port), 0))
	}
	r.egress = to(r.leads, ports...)
	r.size(2, "512Mi")
	r.probe(haproxy.HealthPort, "/healthz", "/healthz", settle)
	r.mount("config", balancerDir, r.configMap(suffixConfig, map[string]string{balancerFile: c.Text()}))
	r.pod.TerminationGracePeriodSeconds = new(int64(haproxy.Drain.Seconds()))
	container := r.container()
	container.Command = haproxy.Command(path.Join(balancerDir, balancerFile))
	ip := &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}
	container.Env = []corev1.EnvVar{{Name: haproxy.PodIP, ValueFrom: &corev1.EnvVarSource{FieldRef: ip}}}
	stop := &corev1.ExecAction{Command: haproxy.StopCommand(1)}
	container.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: stop}}
	return nil
}

// roll replaces the pods when a host or an address leaves: that a pod which loads its configuration again
// leads there no more, nobody tells. Others are loaded.
func (r *rendering) roll() {
	if running := r.in.Running[r.Name]; running != nil {
		r.hash = running.Spec.Template.Annotations[annotationHash]
		led, _ := r.led()
		left := slices.DeleteFunc(led, func(was netip.Addr) bool { return slices.Contains(r.leads, was) })
		if r.hash != "" && len(left) == 0 {
			return
		}
	}
	r.hash = hashed(nil, []byte(r.hash), fmt.Append(nil, r.leads))
}
