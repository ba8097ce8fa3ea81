package services

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Suffixes of the names of further objects.
const (
	suffixConfig   = "-config"    // ConfigMap or Secret: what the program reads
	suffixPull     = "-pull"      // Secret: login of the mirror
	suffixHostKeys = "-host-keys" // Secret: of the jump host
	suffixBMC      = "-bmc"       // Secret: BMC credentials, of earlier versions
	suffixTLS      = "-tls"       // Secret: certificate of the login
	suffixCA       = "-ca"        // Secret: the authority that was made for it
	suffixTrust    = "-trust"     // ConfigMap: what the login's clients trust
)

// Render renders the services of a SIPCluster.
func Render(in Input) Set {
	var set Set
	for i, s := range in.Spec.LoadBalancerControlPlane {
		set.add(in.service(LoadBalancerControlPlane, i, s.Service, func(r *rendering) error { return r.controlPlane(s) }))
	}
	for i, s := range in.Spec.LoadBalancerWorker {
		set.add(in.service(LoadBalancerWorker, i, s.Service, func(r *rendering) error { return r.workers(s) }))
	}
	for i, s := range in.Spec.JumpHost {
		set.add(in.service(JumpHost, i, s.Service, func(r *rendering) error { return r.jumpHost(s) }))
	}
	for i, s := range in.Spec.Auth {
		set.add(in.service(Auth, i, s.Service, func(r *rendering) error { return r.auth(s) }))
	}
	return set
}

func (s *Set) add(one Service, renewAt time.Time) {
	s.Services = append(s.Services, one)
	if !renewAt.IsZero() && (s.RenewAt.IsZero() || renewAt.Before(s.RenewAt)) {
		s.RenewAt = renewAt
	}
}

// rendering is one service that is being rendered.
type rendering struct {
	in      Input
	field   string // of the spec, for errors
	spec    airship.Service
	w       workload
	before  []runtime.Object // what the Deployment's pods mount
	renewAt time.Time

	names   map[types.NamespacedName]string     // of hosts; nil before they are placed
	owners  map[netip.Addr]types.NamespacedName // the first host that has an address
	leftOut map[types.NamespacedName]string     // hosts, and why
}

// service renders one service: what all have in common, and by fill what is its own.
func (in Input) service(kind Kind, index int, spec airship.Service, fill func(*rendering) error) (Service, time.Time) {
	r := &rendering{in: in, field: fmt.Sprintf("spec.services.%s[%d]", kind, index), spec: spec}
	r.w = workload{kind: kind, assigned: in.AssignsUsers, name: Name(in.Cluster.Name, kind, index), nodeLabels: spec.NodeLabels}
	r.w.tolerations = spec.Tolerations
	out := Service{Name: r.w.name, Kind: kind}
	if out.Err = errors.Join(r.base(), fill(r)); out.Err != nil {
		out.Err = fault.Join(out.Err)
		return out, time.Time{}
	}
	for _, o := range append(r.before, r.w.policy(), r.w.disruption(), r.w.service(), r.w.deployment()) {
		u, err := plain(o)
		if err != nil {
			return Service{Name: r.w.name, Kind: kind, Err: r.defect(err)}, time.Time{}
		}
		out.Objects = append(out.Objects, u)
	}
	out.Image, out.Ports, out.LeftOut = r.w.image, r.w.answered(), r.leftOut
	return out, r.renewAt
}

// base is what all services have in common.
func (r *rendering) base() error {
	var imageErr error
	r.w.image, imageErr = r.in.Images.Image(r.w.name, r.w.kind, r.spec.Image)
	errs := []error{imageErr, r.nodeLabels()}
	if ip := r.spec.ClusterIP; ip != nil && *ip != "" {
		addr, err := netip.ParseAddr(*ip)
		if err != nil || addr.Zone() != "" {
			errs = append(errs, r.wrong(".clusterIP", fmt.Sprintf("%q is not an IP address", *ip), "write one of the cluster's Service network, or leave it out"))
		}
		r.w.clusterIP = addr.String()
	}
	if len(r.in.PullSecret) > 0 {
		r.w.pullSecret = r.w.name + suffixPull
		pull := r.w.secret(r.w.pullSecret, Secret{corev1.DockerConfigJsonKey: r.in.PullSecret})
		pull.Type = corev1.SecretTypeDockerConfigJson
		r.before = append(r.before, pull)
	}
	return errors.Join(errs...)
}

func (r *rendering) nodeLabels() error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(r.spec.NodeLabels)) {
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(r.spec.NodeLabels[key])...)
		if len(problems) > 0 {
			errs = append(errs, r.wrong(".nodeLabels", fmt.Sprintf("%q: %q is not a label: %s", key, r.spec.NodeLabels[key], strings.Join(problems, "; ")), "write labels that nodes have"))
		}
	}
	return errors.Join(errs...)
}

// answered are the ports that every node answers on, in ranges, sorted.
func (w workload) answered() []Ports {
	var out []Ports
	for _, p := range w.ports {
		switch last := len(out) - 1; {
		case p.withoutService:
		case last >= 0 && out[last].End+1 == p.node:
			out[last].End = p.node
		default:
			out = append(out, Ports{Start: p.node, End: p.node})
		}
	}
	return out
}

// secret returns one that the spec refers to, with the keys that it has to have.
func (r *rendering) secret(field string, name airship.SecretName, keys ...string) (Secret, error) {
	data, ok := r.in.Secrets[name]
	if !ok {
		return nil, &fault.Error{
			Reason: fault.NotFound, Op: "render", Subject: r.field + field, Err: fmt.Errorf("the Secret %s/%s is not there", r.in.Cluster.Namespace, name),
			Hint: strings.TrimSuffix("make it, with "+strings.Join(keys, " and "), ", with "),
		}
	}
	for _, key := range keys {
		if len(data[key]) == 0 {
			return nil, r.wrong(field, fmt.Sprintf("the Secret %s/%s has no %s", r.in.Cluster.Namespace, name, key), "add it")
		}
	}
	return data, nil
}

// keyedHash is a hash of what is secret, that tells nothing to who has no key: it is kept
// in the Secret that it is about.
func (r *rendering) keyedHash(kept Secret, parts ...[]byte) (key []byte, hash string, err error) {
	key = kept[hashKey]
	if len(key) != sha256.Size {
		key = make([]byte, sha256.Size)
		if _, err := io.ReadFull(r.in.Rand, key); err != nil {
			return nil, "", r.defect(err)
		}
	}
	return key, hashed(key, parts...), nil
}

// hashKey is where keyedHash keeps its key. Programs are not told of it.
const hashKey = "hash-key"

// hashed hashes parts; without a key they are not secret.
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
	p := networkingv1.NetworkPolicyPort{Protocol: ptr(corev1.ProtocolTCP), Port: ptr(intstr.FromInt32(first))}
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
