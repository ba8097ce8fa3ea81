package v1

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Services in front of the hosts of a tenant cluster. Their ports are NodePorts of the management
// cluster's nodes, which share one range: each port is used once.
type Services struct {
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	LoadBalancerControlPlane []LoadBalancerControlPlane `json:"loadBalancerControlPlane,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	LoadBalancerWorker []LoadBalancerWorker `json:"loadBalancerWorker,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	JumpHost []JumpHost `json:"jumpHost,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	Auth []Auth `json:"auth,omitempty"`
}

// Service has the fields of all services.
type Service struct {
	// Image of the original operator is accepted without effect: services run the bundle's. An event reports it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
	// NodeLabels select the management cluster's nodes that the service runs on.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// Tolerations of the service's pods, for taints of the management cluster's nodes.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// NodeInterfaceID is the id of the network, in the hosts' network data, whose addresses the
	// service uses. Default: the only network of each IP family.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'\p{Cc}')`,message="write the id of a network on one line"
	NodeInterfaceID string `json:"nodeInterfaceId,omitempty"`
	// ServiceType is NodePort: every node of the management cluster answers on the service's ports;
	// or LoadBalancer: a load balancer of that cluster answers too. Default: NodePort.
	// +optional
	// +kubebuilder:validation:Enum=NodePort;LoadBalancer
	ServiceType corev1.ServiceType `json:"serviceType,omitempty"`
	// LoadBalancerClass of a Service of type LoadBalancer. Default: the cluster's.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([-a-z0-9.]+/)?[-A-Za-z0-9_.]+$`
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`
	// ClusterIP of the Service. Default: the API server picks one.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	ClusterIP *string `json:"clusterIP,omitempty"`
}

// LoadBalancerControlPlane forwards TCP to port 6443 of the control-plane hosts.
type LoadBalancerControlPlane struct {
	Service `json:",inline"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort"`
	// HealthCheck of the API servers. ReadyZ: GET /readyz answers 200. TCP: the port accepts a
	// connection, for API servers that refuse anonymous requests. Default: ReadyZ.
	// +optional
	// +kubebuilder:validation:Enum=ReadyZ;TCP
	HealthCheck string `json:"healthCheck,omitempty"`
}

// LoadBalancerWorker forwards TCP to the same port of the worker hosts, for each port of a range.
type LoadBalancerWorker struct {
	Service       `json:",inline"`
	NodePortRange PortRange `json:"nodePortRange"`
	// HealthChecks of ports of the range. A port without one uses the hosts whose kubelet answers.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=port
	HealthChecks []PortCheck `json:"healthChecks,omitempty"`
}

// PortCheck is the health check of hosts for one port.
type PortCheck struct {
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Type TCP: the port accepts a connection. HTTP and HTTPS: GET answers 200.
	// +kubebuilder:validation:Enum=TCP;HTTP;HTTPS
	Type string `json:"type"`
	// Path of GET. Default: /.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/[-A-Za-z0-9_./]*$`
	Path string `json:"path,omitempty"`
}

// PortRange is the ports from start to end, both included.
//
// +kubebuilder:validation:XValidation:rule="self.start <= self.end",message="start is above end: write the lower port as start"
// +kubebuilder:validation:XValidation:rule="self.end - self.start < 1000",message="write a range of at most 1000 ports"
type PortRange struct {
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Start int32 `json:"start"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	End int32 `json:"end"`
}

// JumpHost is an SSH server that connects to the tenant's hosts only. To control their power, create a HostAction.
type JumpHost struct {
	Service `json:",inline"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort"`
	// ExternalTrafficPolicy of the Service. Cluster: every node answers on nodePort. The log and the
	// limits on connections per address see the address of that node. Local: only the nodes that run
	// the pod answer (see nodeLabels), and see the clients' own addresses. Default: Cluster.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`
	// BMC has no effect: create a HostAction to control a host's power. It is accepted from earlier
	// versions, and an event reports it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	BMC *BMC `json:"bmc,omitempty"`
	// SSHAuthorizedKeys may log in: public keys as `ssh-keygen` makes them, TYPE KEY COMMENT, without options.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=16384
	// +kubebuilder:validation:items:Pattern=`^\s*(ssh-(rsa|ed25519)|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh[.]com) [A-Za-z0-9+/]+=*( .*)?\s*$`
	// +listType=atomic
	SSHAuthorizedKeys []string `json:"sshAuthorizedKeys,omitempty"`
	// TrustedUserCAKeys are public keys of CAs. A user with a certificate of one of them for one of
	// authorizedPrincipals may log in.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=16384
	// +kubebuilder:validation:items:Pattern=`^\s*(ssh-(rsa|ed25519)|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh[.]com) [A-Za-z0-9+/]+=*( .*)?\s*$`
	// +listType=atomic
	TrustedUserCAKeys []string `json:"trustedUserCAKeys,omitempty"`
	// AuthorizedPrincipals of such certificates. Default: ubuntu.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9@._-]+$`
	// +listType=atomic
	AuthorizedPrincipals []string `json:"authorizedPrincipals,omitempty"`
	// NodeSSHPrivateKeys has no effect: clients reach hosts with their own keys by `ssh -J`. It is
	// accepted from earlier versions, and an event reports it.
	// +optional
	NodeSSHPrivateKeys SecretName `json:"nodeSSHPrivateKeys,omitempty"`
}

// BMC holds the BMC settings of a jump host of an earlier version, of any form.
type BMC struct{}

// Auth is an OIDC provider (Dex).
type Auth struct {
	Service `json:",inline"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort"`
	// Issuer is the URL of the tokens' issuer, by which clients reach the service: https://HOST:PORT/PATH.
	// A service without one, as in the earlier operator, does not run, and Ready says so.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^$|^https://[^/?#@\s]+(/[^?#\s]*)?$')`,message="write https://HOST:PORT, with a path where wanted, without user, query and fragment"
	Issuer string `json:"issuer,omitempty"`
	// ConfigSecret names a Secret with Dex's settings, as Dex documents them, under the key
	// config.yaml: connectors, staticClients, staticPasswords and others. The operator sets the
	// issuer, and where Dex listens and stores its state.
	// +optional
	ConfigSecret SecretName `json:"configSecret,omitempty"`
	// TLSSecret names a Secret of cert-manager's form: the certificate for the host of issuer
	// (tls.crt), its key (tls.key) and the CA that clients trust (ca.crt). Default: the operator
	// makes them, for ten years.
	// +optional
	TLSSecret SecretName `json:"tlsSecret,omitempty"`
	// CASecret has no effect: write the certificate into tlsSecret. It is accepted from earlier
	// versions, and Ready reports it.
	// +optional
	CASecret SecretName `json:"caSecret,omitempty"`
}

// SecretName names a Secret in the resource's own namespace; "" names none.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule=`self.matches(r'^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="write the name of a Secret: lower-case letters and digits, with - and . between them"
type SecretName string

// All returns the common fields of each service with its field name, such as jumpHost[0].
func (s *Services) All() iter.Seq2[string, Service] {
	return func(yield func(string, Service) bool) {
		goOn := true
		of := func(kind string, i int, one Service) { goOn = goOn && yield(fmt.Sprintf("%s[%d]", kind, i), one) }
		for i := range s.LoadBalancerControlPlane {
			of("loadBalancerControlPlane", i, s.LoadBalancerControlPlane[i].Service)
		}
		for i := range s.LoadBalancerWorker {
			of("loadBalancerWorker", i, s.LoadBalancerWorker[i].Service)
		}
		for i := range s.JumpHost {
			of("jumpHost", i, s.JumpHost[i].Service)
		}
		for i := range s.Auth {
			of("auth", i, s.Auth[i].Service)
		}
	}
}

// IsEmpty reports whether no service is requested.
func (s *Services) IsEmpty() bool {
	return len(s.LoadBalancerControlPlane)+len(s.LoadBalancerWorker)+len(s.JumpHost)+len(s.Auth) == 0
}

// Interfaces returns the ids of the networks on which the services use addresses of a role's hosts, sorted; "" is the
// only network. A service that does not connect to them uses none.
func (s *Services) Interfaces(role Role) []string {
	var all []string
	for field, one := range s.All() {
		if kind, _, _ := strings.Cut(field, "["); kind == "jumpHost" || kind == "loadBalancer"+string(role) {
			all = append(all, one.NodeInterfaceID)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
