package services

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// user that all services run as: nobody's on any node, and not root.
const user int64 = 65532

// Labels of a service's pods, and the annotation that rolls them.
const (
	labelInstance  = "app.kubernetes.io/instance"
	labelComponent = "app.kubernetes.io/component"
	labelPartOf    = "app.kubernetes.io/part-of"
	annotationHash = "sip.airshipit.org/configuration"
	container      = "service"
)

// workload is what the services differ in.
type workload struct {
	kind          Kind
	assigned      bool // the cluster says which user it runs as
	name, image   string
	replicas      int32
	command       []string // empty for the image's
	args          []string
	env           []corev1.EnvVar
	ports         []port
	clusterIP     string
	trafficPolicy corev1.ServiceExternalTrafficPolicy // "" for the default
	nodeLabels    map[string]string
	tolerations   []corev1.Toleration
	aliases       []corev1.HostAlias
	mounts        []mount
	hash          string // of what the pods read once, at their start; "" for nothing
	health        health
	stop          []string // what ends a pod; none for the signal of the image
	grace         int64    // seconds that a pod may take for that
	memory        string   // at most
	egress        []networkingv1.NetworkPolicyEgressRule
	pullSecret    string
}

// port is one that every node answers on.
type port struct {
	name           string
	service, node  int32
	pod            int32
	lastPod        int32 // of a range that the policy lets in; 0 for pod alone
	withoutService bool  // let in, and not led to: for the kubelet
}

// health is where the kubelet asks: over HTTP where there are paths, else whether the port accepts.
type health struct {
	port        int32
	live, ready string
	delay       int32 // seconds until a pod is asked whether it is ready
}

// mount is a volume below a path, read-only where it is a Secret or a ConfigMap.
type mount struct {
	name, path        string
	secret, configMap string // one of them, or neither for an empty folder
	only              string // key of a Secret that the pod has no other of; "" for all
}

func (w workload) labels() map[string]string {
	return map[string]string{labelInstance: w.name, labelComponent: string(w.kind), labelPartOf: "sip"}
}

func (w workload) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: w.labels()}
}

func (w workload) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: PodLabels(w.name)}
}

// deployment rolls pods one by one, and takes none away before its successor is ready.
func (w workload) deployment() *appsv1.Deployment {
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: w.meta(w.name),
		Spec: appsv1.DeploymentSpec{
			Replicas: &w.replicas, Selector: w.selector(), RevisionHistoryLimit: ptr[int32](2),
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &none, MaxSurge: &one},
			},
			Template: corev1.PodTemplateSpec{ObjectMeta: w.podMeta(), Spec: w.pod()},
		},
	}
}

func (w workload) podMeta() metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Labels: w.labels()}
	if w.hash != "" {
		meta.Annotations = map[string]string{annotationHash: w.hash}
	}
	return meta
}

func (w workload) pod() corev1.PodSpec {
	spec := corev1.PodSpec{
		Containers: []corev1.Container{w.container()}, HostAliases: w.aliases,
		NodeSelector: w.nodeLabels, Tolerations: w.tolerations,
		AutomountServiceAccountToken: ptr(false), EnableServiceLinks: ptr(false), TerminationGracePeriodSeconds: &w.grace,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr(true), RunAsUser: ptr(user), RunAsGroup: ptr(user), FSGroup: ptr(user),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: w.selector(),
		}},
	}
	if w.assigned {
		spec.SecurityContext.RunAsUser, spec.SecurityContext.RunAsGroup, spec.SecurityContext.FSGroup = nil, nil, nil
	}
	if w.pullSecret != "" {
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: w.pullSecret}}
	}
	for _, m := range w.mounts {
		spec.Volumes = append(spec.Volumes, m.volume())
	}
	return spec
}

func (w workload) container() corev1.Container {
	c := corev1.Container{
		Name: container, Image: w.image, Command: w.command, Args: w.args, Env: w.env,
		LivenessProbe: w.health.probe(w.health.live, 0), ReadinessProbe: w.health.probe(w.health.ready, w.health.delay),
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(w.memory)},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr(false), ReadOnlyRootFilesystem: ptr(true), RunAsNonRoot: ptr(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	if len(w.stop) > 0 {
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: w.stop}}}
	}
	for _, m := range w.mounts {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: m.name, MountPath: m.path, ReadOnly: m.secret+m.configMap != ""})
	}
	return c
}

func (h health) probe(path string, delay int32) *corev1.Probe {
	ask := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(h.port)}}
	if path != "" {
		ask = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(h.port)}}
	}
	return &corev1.Probe{
		ProbeHandler: ask, InitialDelaySeconds: delay, PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3,
	}
}

func (m mount) volume() corev1.Volume {
	v := corev1.Volume{Name: m.name}
	switch {
	case m.secret != "":
		v.Secret = &corev1.SecretVolumeSource{SecretName: m.secret, DefaultMode: ptr[int32](0o440)}
		if m.only != "" {
			v.Secret.Items = []corev1.KeyToPath{{Key: m.only, Path: m.only}}
		}
	case m.configMap != "":
		v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: m.configMap}, DefaultMode: ptr[int32](0o440)}
	default:
		v.EmptyDir = &corev1.EmptyDirVolumeSource{SizeLimit: ptr(resource.MustParse("256Mi"))}
	}
	return v
}

func (w workload) service() *corev1.Service {
	s := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: w.meta(w.name),
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: w.selector().MatchLabels, ClusterIP: w.clusterIP, ExternalTrafficPolicy: w.trafficPolicy},
	}
	for _, p := range w.ports {
		if !p.withoutService {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
				Name: p.name, Protocol: corev1.ProtocolTCP, Port: p.service, NodePort: p.node, TargetPort: intstr.FromInt32(p.pod),
			})
		}
	}
	return s
}

// disruption lets one pod go at a time. Of a single one too: it would otherwise keep its
// node from ever being drained.
func (w workload) disruption() *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	return &policyv1.PodDisruptionBudget{
		TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}, ObjectMeta: w.meta(w.name),
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: w.selector()},
	}
}

// policy lets clients in, from wherever, on the service's ports, and the service out to
// what it serves and to nothing else.
func (w workload) policy() *networkingv1.NetworkPolicy {
	tcp := corev1.ProtocolTCP
	var in []networkingv1.NetworkPolicyPort
	for _, p := range w.ports {
		if p.lastPod < 0 { // of a range that another port lets in
			continue
		}
		rule := networkingv1.NetworkPolicyPort{Protocol: &tcp, Port: ptr(intstr.FromInt32(p.pod))}
		if p.lastPod > p.pod {
			rule.EndPort = ptr(p.lastPod)
		}
		in = append(in, rule)
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}, ObjectMeta: w.meta(w.name),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *w.selector(),
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: in}},
			Egress:      w.egress,
		},
	}
}

func (w workload) configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: w.meta(name), Data: data}
}

func (w workload) secret(name string, data Secret) *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: w.meta(name), Type: corev1.SecretTypeOpaque, Data: data}
}

// environment returns variables in the order of their names.
func environment(env map[string]string) []corev1.EnvVar {
	var out []corev1.EnvVar
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, corev1.EnvVar{Name: name, Value: env[name]})
	}
	return out
}

func ptr[T any](v T) *T { return &v }
