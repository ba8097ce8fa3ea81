package services

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

// Suffixes of the names of further objects.
const (
	suffixConfig   = "-config"    // ConfigMap or Secret: what the program reads
	suffixPull     = "-pull"      // Secret: login of the mirror
	suffixHostKeys = "-host-keys" // Secret: of the jump host
	suffixTLS      = "-tls"       // Secret: certificate of the login
	suffixCA       = "-ca"        // Secret: the authority that was made for it
	suffixTrust    = "-trust"     // ConfigMap: what the login's clients trust
)

// Render renders the services of a SIPCluster in the order of the spec: load balancers, jump hosts, login.
func Render(in Input) (all []Service) {
	for i, s := range in.Spec.LoadBalancerControlPlane {
		fill := func(r *rendering) error { return r.controlPlane(s) }
		all = append(all, in.service(LoadBalancerControlPlane, i, s.Service, fill))
	}
	for i, s := range in.Spec.LoadBalancerWorker {
		all = append(all, in.service(LoadBalancerWorker, i, s.Service, func(r *rendering) error { return r.workers(s) }))
	}
	for i, s := range in.Spec.JumpHost {
		all = append(all, in.service(JumpHost, i, s.Service, func(r *rendering) error { return r.jumpHost(s) }))
	}
	for i, s := range in.Spec.Auth {
		all = append(all, in.service(Auth, i, s.Service, func(r *rendering) error { return r.auth(s, i == 0) }))
	}
	return all
}

// workload is what the services differ in.
type workload struct {
	pod      corev1.PodSpec
	replicas int32
	service  corev1.ServiceSpec
	ingress  []networkingv1.NetworkPolicyPort // let in from wherever
	egress   []networkingv1.NetworkPolicyEgressRule
	hash     string // of what the pods read once, at their start; "" for nothing
	leads    string // addresses that the pods lead to
}

// rendering is one service that is being rendered.
type rendering struct {
	in                 Input
	kind               Kind
	name, image, field string // field of the spec, for errors
	spec               airship.Service
	workload
	before  []runtime.Object // what the Deployment's pods mount
	renewAt time.Time

	hosts   []jumphost.Host                 // of all roles, where place was called
	leftOut map[types.NamespacedName]string // hosts, and why
}

// service renders one service: what all have in common, and by fill what is its own.
func (in Input) service(kind Kind, index int, spec airship.Service, fill func(*rendering) error) Service {
	r := &rendering{
		in: in, kind: kind, name: Name(in.Cluster.Name, kind, index), field: fmt.Sprintf("spec.services.%s[%d]", kind, index), spec: spec,
	}
	out := Service{Name: r.name, Kind: kind}
	if out.Err = errors.Join(r.base(), fill(r)); out.Err != nil {
		out.Err = fault.Join(out.Err)
		return out
	}
	for _, o := range r.objects() {
		u, err := plain(o)
		if err != nil {
			return Service{Name: r.name, Kind: kind, Err: r.defect(err)}
		}
		out.Objects = append(out.Objects, u)
	}
	out.Image, out.Endpoints, out.LeftOut, out.RenewAt = r.image, r.endpoints(), r.leftOut, r.renewAt
	return out
}

// base is what all services have in common.
func (r *rendering) base() error {
	var imageErr, ipErr error
	r.image, imageErr = r.findImage()
	r.pod = r.newPod()
	r.service.Type = cmp.Or(r.spec.ServiceType, corev1.ServiceTypeNodePort)
	if r.service.Type == corev1.ServiceTypeLoadBalancer {
		r.service.LoadBalancerClass = r.spec.LoadBalancerClass
	}
	if ip := r.spec.ClusterIP; ip != nil && *ip != "" {
		addr, err := netip.ParseAddr(*ip)
		if err != nil {
			ipErr = r.wrong(".clusterIP", err.Error(), "write one of the cluster's Service network, or leave it out")
		}
		r.service.ClusterIP = addr.String() // as the API server writes it
	}
	if len(r.in.PullSecret) > 0 {
		r.keep(suffixPull, corev1.SecretTypeDockerConfigJson, Secret{corev1.DockerConfigJsonKey: r.in.PullSecret})
		r.pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: r.name + suffixPull}}
	}
	return errors.Join(imageErr, ipErr)
}

// findImage returns the image. While the bundle cannot be used, a service that has none yet waits for it.
func (r *rendering) findImage() (string, error) {
	why, running := r.in.Unusable, r.in.Running[r.name]
	switch {
	case r.spec.Image != "" && r.in.AllowOtherImages:
		return r.spec.Image, nil
	case why == nil:
		return r.in.Images(r.kind)
	case running != nil && len(running.Spec.Template.Spec.Containers) == 1:
		return running.Spec.Template.Spec.Containers[0].Image, nil
	}
	return "", fault.Errorf(fault.ReasonOf(why), "find the image of", fmt.Sprintf("services.%s", r.kind),
		fault.HintOf(why), "%w", why)
}

// endpoints are the ports that every node answers on: one, or a range.
func (w *workload) endpoints() []string {
	switch ports := w.service.Ports; len(ports) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf(":%d", ports[0].NodePort)}
	default:
		return []string{fmt.Sprintf(":%d-%d", ports[0].NodePort, ports[len(ports)-1].NodePort)}
	}
}

// secret returns one that the spec refers to, with the keys that it has to have.
func (r *rendering) secret(field string, name airship.SecretName, keys ...string) (Secret, error) {
	data, err := r.in.Secret(name)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return nil, fault.Errorf(fault.NotFound, "render", r.field+field,
			strings.TrimSuffix("make it, with "+strings.Join(keys, " and "), ", with "),
			"the Secret %s/%s is not there", r.in.Cluster.Namespace, name)
	}
	for _, key := range keys {
		if len(data[key]) == 0 {
			return nil, r.wrong(field, fmt.Sprintf("the Secret %s/%s has no %s", r.in.Cluster.Namespace, name, key), "add it")
		}
	}
	return data, nil
}

// hashed hashes parts: with a secret key, if they are secret.
func hashed(key []byte, parts ...[]byte) string {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// to lets a pod out to addresses, on TCP ports.
func to(addresses []netip.Addr, ports ...networkingv1.NetworkPolicyPort) []networkingv1.NetworkPolicyEgressRule {
	if len(addresses) == 0 {
		return []networkingv1.NetworkPolicyEgressRule{}
	}
	var all []netip.Prefix
	for _, a := range addresses {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return toPrefixes(all, ports...)
}

func toPrefixes(all []netip.Prefix, ports ...networkingv1.NetworkPolicyPort) []networkingv1.NetworkPolicyEgressRule {
	rule := networkingv1.NetworkPolicyEgressRule{Ports: ports}
	for _, p := range all {
		rule.To = append(rule.To, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: p.String()}})
	}
	return []networkingv1.NetworkPolicyEgressRule{rule}
}

func tcpPort(first, last int32) networkingv1.NetworkPolicyPort {
	p := networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(first))}
	if last > first {
		p.EndPort = &last
	}
	return p
}

func (r *rendering) wrong(field, why, hint string) error {
	return &fault.Error{Reason: fault.InvalidInput, Op: "render", Subject: r.field + field, Err: errors.New(why), Hint: hint}
}

func (r *rendering) defect(err error) error {
	return &fault.Error{Reason: fault.Internal, Op: "render", Subject: r.field, Err: err, Hint: "report this: it is a defect of the operator"}
}

// plain is an object as it is applied: without what it does not say.
func plain(o runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "spec", "template", "metadata", "creationTimestamp")
	return u, nil
}
