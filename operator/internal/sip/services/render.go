package services

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Suffixes of the names of further objects.
const (
	suffixConfig   = "-config"    // ConfigMap or Secret: configuration of the program
	suffixPull     = "-pull"      // Secret: pull secret of the mirror
	suffixHostKeys = "-host-keys" // Secret: of the jump host
	suffixTLS      = "-tls"       // Secret: certificate of the login
	suffixFormerCA = "-ca"        // Secret: its CA, under programs before v0.1
	suffixTrust    = "-trust"     // ConfigMap: certificates that the login's clients trust
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
		all = append(all, in.service(Auth, i, s.Service, func(r *rendering) error { return r.auth(s, i) }))
	}
	return all
}

// rendering is one service while it is rendered.
type rendering struct {
	Service
	in    Input
	field string // of the spec, for errors
	spec  airship.Service

	pod      corev1.PodSpec
	replicas int32
	service  corev1.ServiceSpec
	ingress  []networkingv1.NetworkPolicyPort // let in from any source
	egress   []networkingv1.NetworkPolicyEgressRule
	hash     string           // of the data that pods read only at their start; "" for none
	leads    []netip.Addr     // addresses that the pods forward to, sorted
	hosts    []placed         // of the roles that place was called for
	before   []runtime.Object // objects that the Deployment's pods mount
}

// service renders one service: the common parts, and by fill its own ones.
func (in Input) service(kind Kind, index int, spec airship.Service, fill func(*rendering) error) Service {
	none := Service{Name: Name(in.Cluster.Name, kind, index), Kind: kind}
	r := &rendering{Service: none, in: in, spec: spec, field: fmt.Sprintf("spec.services.%s[%d]", kind, index)}
	if err := fault.Join(r.base(), fill(r)); err != nil {
		none.Err = fault.Join(err, r.Err)
		return none
	}
	for _, o := range r.objects() {
		u, err := plain(o)
		if err != nil {
			none.Err = r.defect(err)
			return none
		}
		r.Objects = append(r.Objects, u)
	}
	if ports := r.service.Ports; len(ports) == 1 {
		r.Endpoints = []string{fmt.Sprintf(":%d", ports[0].NodePort)}
	} else if len(ports) > 1 {
		r.Endpoints = []string{fmt.Sprintf(":%d-%d", ports[0].NodePort, ports[len(ports)-1].NodePort)}
	}
	return r.Service
}

func (r *rendering) base() error {
	var err error
	r.Image, err = r.findImage()
	r.pod = r.newPod()
	r.service.Type = cmp.Or(r.spec.ServiceType, corev1.ServiceTypeNodePort)
	if r.service.Type == corev1.ServiceTypeLoadBalancer {
		r.service.LoadBalancerClass = r.spec.LoadBalancerClass
	}
	r.service.ClusterIP = ptr.Deref(r.spec.ClusterIP, "")
	if len(r.in.PullSecret) > 0 {
		r.keep(suffixPull, corev1.SecretTypeDockerConfigJson, Secret{corev1.DockerConfigJsonKey: r.in.PullSecret})
		r.pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: r.Name + suffixPull}}
	}
	return err
}

// findImage returns the image. While the bundle cannot be used, a service without an image waits for it.
func (r *rendering) findImage() (string, error) {
	why, running := r.in.Unusable, r.in.Running[r.Name]
	switch {
	case why == nil:
		return r.in.Images(r.Kind)
	case running != nil && len(running.Spec.Template.Spec.Containers) == 1:
		return running.Spec.Template.Spec.Containers[0].Image, nil
	}
	return "", fault.Errorf(fault.ReasonOf(why), "find the image of", fmt.Sprintf("services.%s", r.Kind),
		fault.HintOf(why), "%w", why)
}

// secret returns a Secret that the spec refers to, with the keys that it must have.
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

// hashed returns a hash of parts: with a secret key if they are secret.
func hashed(key []byte, parts ...[]byte) string {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// to returns rules that let a pod connect to addresses on TCP ports.
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

// plain returns an object to apply, without empty fields.
func plain(o runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	delete(content, "status")
	return u, nil
}

// placed is a host with its addresses on the service's network.
type placed struct {
	Namespace, Name string // the name is a DNS subdomain
	Role            airship.Role
	Addresses       []netip.Addr
}

// place finds the hosts' addresses on the service's network. A host that cannot be read keeps, of its earlier ones,
// those that the running service forwards to; a new service gets all. It fails if running pods may forward to a host
// whose address is unknown, and forward to none out of reach.
func (r *rendering) place(roles ...airship.Role) error {
	unread, running := 0, r.in.Running[r.Name]
	led := LeadsTo(running)
	for _, role := range roles {
		for _, h := range r.in.Hosts[role] {
			one := placed{Namespace: h.Namespace, Name: h.Name, Role: role}
			one.Addresses = h.Addresses[r.spec.NodeInterfaceID]
			if h.Unread && len(one.Addresses) == 0 {
				unread++
				one.Addresses = slices.DeleteFunc(slices.Clone(h.Before), func(a netip.Addr) bool {
					return running != nil && !slices.Contains(led, a)
				})
			}
			r.hosts, r.leads = append(r.hosts, one), append(r.leads, one.Addresses...)
		}
	}
	slices.SortFunc(r.leads, netip.Addr.Compare)
	r.leads = slices.Compact(r.leads)
	stays := running == nil || len(led) > 0 && !slices.ContainsFunc(led, r.in.OutOfReach)
	if unread > 0 && len(r.leads) == 0 && stays {
		return r.wrong(".nodeInterfaceId", fmt.Sprintf("%d hosts have no known address there, and what runs stays", unread),
			"name a network that the hosts' network data has, or correct the data")
	}
	return nil
}

// user is the UID of all services: unused on every node, and not root.
const user int64 = 65532

// Labels of a service's pods, and annotations of its Deployment and pods.
const (
	labelInstance   = "app.kubernetes.io/instance"
	labelComponent  = "app.kubernetes.io/component"
	labelPartOf     = "app.kubernetes.io/part-of"
	annotationHash  = "sip.airshipit.org/configuration"
	annotationLeads = "sip.airshipit.org/leads-to" // of a Deployment: the addresses that its pods forward to
	container       = "service"
)

func (r *rendering) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{
		labelInstance: r.Name, labelComponent: string(r.Kind), labelPartOf: "sip",
	}}
}

func (r *rendering) newPod() corev1.PodSpec {
	spec := corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: container, Image: r.Image,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), RunAsNonRoot: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
		NodeSelector: r.spec.NodeLabels, Tolerations: r.spec.Tolerations,
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   new(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: r.selector(),
		}},
	}
	if c := spec.SecurityContext; !r.in.AssignsUsers {
		c.RunAsUser, c.RunAsGroup, c.FSGroup = new(user), new(user), new(user)
	}
	return spec
}

func (r *rendering) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{labelInstance: r.Name}}
}

func (r *rendering) container() *corev1.Container { return &r.pod.Containers[0] }

// size sets the number of pods, and the memory limit of each.
func (r *rendering) size(replicas int32, memory string) {
	r.replicas = replicas
	r.container().Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("50m"), "memory": resource.MustParse("64Mi")},
		Limits:   corev1.ResourceList{"memory": resource.MustParse(memory)},
	}
}

// serve opens a port on every node, which forwards to one of the pods.
func (r *rendering) serve(name string, port, node, pod int32) {
	r.service.Ports = append(r.service.Ports, corev1.ServicePort{
		Name: name, Protocol: corev1.ProtocolTCP, Port: port, NodePort: node, TargetPort: intstr.FromInt32(pod),
	})
}

// probe lets the kubelet check a port: over HTTP if paths are given, else by connecting. The readiness probe starts
// after delay seconds.
func (r *rendering) probe(port int32, live, ready string, delay int32) {
	probe := func(path string) *corev1.Probe {
		p := &corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3}
		if path == "" {
			p.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}
		} else {
			p.HTTPGet = &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}
		}
		return p
	}
	c := r.container()
	c.LivenessProbe, c.ReadinessProbe = probe(live), probe(ready)
	c.ReadinessProbe.InitialDelaySeconds = delay
}

// mount mounts a volume: read-only if it has a source, else an empty directory.
func (r *rendering) mount(name, path string, source corev1.VolumeSource) {
	readOnly := source != corev1.VolumeSource{}
	if !readOnly {
		source.EmptyDir = &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("256Mi"))}
	}
	r.pod.Volumes = append(r.pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	mounts := &r.container().VolumeMounts
	*mounts = append(*mounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: readOnly})
}

func (r *rendering) configMap(suffix string, data map[string]string) corev1.VolumeSource {
	r.before = append(r.before, &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: r.meta(r.Name + suffix), Data: data,
	})
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: r.Name + suffix}, DefaultMode: new(int32(0o440)),
	}}
}

func (r *rendering) keep(suffix string, typ corev1.SecretType, data Secret) corev1.VolumeSource {
	r.before = append(r.before, &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: r.meta(r.Name + suffix),
		Type: typ, Data: data,
	})
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: r.Name + suffix, DefaultMode: new(int32(0o440)),
	}}
}

// objects returns all objects in the order to apply them. Pods roll one by one, each after its successor is ready.
// The budget lets one pod go at a time, even a single one: it would else block the drain of its node.
func (r *rendering) objects() []runtime.Object {
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	deployment, template := r.meta(r.Name), r.meta("")
	if r.Kind != Auth {
		var leads []string
		for _, a := range r.leads {
			leads = append(leads, a.String())
		}
		deployment.Annotations = map[string]string{annotationLeads: strings.Join(leads, ",")}
	}
	if r.hash != "" {
		template.Annotations = map[string]string{annotationHash: r.hash}
	}
	r.service.Selector = r.selector().MatchLabels
	return append(r.before,
		&networkingv1.NetworkPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
			ObjectMeta: r.meta(r.Name),
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: *r.selector(),
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
				Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: r.ingress}}, Egress: r.egress,
			},
		},
		&policyv1.PodDisruptionBudget{
			TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}, ObjectMeta: r.meta(r.Name),
			Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: r.selector()},
		},
		&appsv1.Deployment{
			TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: deployment,
			Spec: appsv1.DeploymentSpec{
				Replicas: &r.replicas, Selector: r.selector(), RevisionHistoryLimit: new(int32(2)),
				Strategy: appsv1.DeploymentStrategy{
					Type:          appsv1.RollingUpdateDeploymentStrategyType,
					RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &none, MaxSurge: &one},
				},
				Template: corev1.PodTemplateSpec{ObjectMeta: template, Spec: r.pod},
			},
		},
		&corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: r.meta(r.Name), Spec: r.service,
		},
	)
}
