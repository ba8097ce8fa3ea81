package services

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// user that all services run as: nobody's on any node, and not root.
const user int64 = 65532

// Labels of a service's pods, and the annotation that rolls them.
const (
	labelInstance   = "app.kubernetes.io/instance"
	labelComponent  = "app.kubernetes.io/component"
	labelPartOf     = "app.kubernetes.io/part-of"
	annotationHash  = "sip.airshipit.org/configuration"
	annotationLeads = "sip.airshipit.org/leads-to" // of a Deployment: the addresses that its pods led to
	container       = "service"
)

func (r *rendering) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{
		labelInstance: r.name, labelComponent: string(r.kind), labelPartOf: "sip",
	}}
}

// newPod returns what the pods of all services have.
func (r *rendering) newPod() corev1.PodSpec {
	spec := corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: container, Image: r.image,
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
	return &metav1.LabelSelector{MatchLabels: map[string]string{labelInstance: r.name}}
}

// container is the pods' only one.
func (w *workload) container() *corev1.Container { return &w.pod.Containers[0] }

// size sets how many pods there are, and how much memory each has at most.
func (w *workload) size(replicas int32, memory string) {
	w.replicas = replicas
	w.container().Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("50m"), "memory": resource.MustParse("64Mi")},
		Limits:   corev1.ResourceList{"memory": resource.MustParse(memory)},
	}
}

// serve has every node answer on a port, which leads to one of the pods.
func (w *workload) serve(name string, port, node, pod int32) {
	w.service.Ports = append(w.service.Ports, corev1.ServicePort{
		Name: name, Protocol: corev1.ProtocolTCP, Port: port, NodePort: node, TargetPort: intstr.FromInt32(pod),
	})
}

// probe has the kubelet ask a port: over HTTP where there are paths, else whether it accepts. A pod is asked
// whether it is ready after a delay in seconds.
func (w *workload) probe(port int32, live, ready string, delay int32) {
	probe := func(path string) *corev1.Probe {
		p := &corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3}
		if path == "" {
			p.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}
		} else {
			p.HTTPGet = &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}
		}
		return p
	}
	c := w.container()
	c.LivenessProbe, c.ReadinessProbe = probe(live), probe(ready)
	c.ReadinessProbe.InitialDelaySeconds = delay
}

// mount mounts a volume: read-only where it has a source, else a folder.
func (w *workload) mount(name, path string, source corev1.VolumeSource) {
	readOnly := source != corev1.VolumeSource{}
	if !readOnly {
		source.EmptyDir = &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("256Mi"))}
	}
	w.pod.Volumes = append(w.pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	mounts := &w.container().VolumeMounts
	*mounts = append(*mounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: readOnly})
}

// configMap adds a ConfigMap of that suffix.
func (r *rendering) configMap(suffix string, data map[string]string) corev1.VolumeSource {
	r.before = append(r.before, &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: r.meta(r.name + suffix), Data: data,
	})
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: r.name + suffix}, DefaultMode: new(int32(0o440)),
	}}
}

// keep adds a Secret of that suffix.
func (r *rendering) keep(suffix string, typ corev1.SecretType, data Secret) corev1.VolumeSource {
	r.before = append(r.before, &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: r.meta(r.name + suffix),
		Type: typ, Data: data,
	})
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: r.name + suffix, DefaultMode: new(int32(0o440)),
	}}
}

// objects returns all objects, in the order in which they are applied. Pods roll one by one, and none is taken
// away before its successor is ready. The budget lets one pod go at a time. Of a single one too: it would
// otherwise keep its node from ever being drained.
func (r *rendering) objects() []runtime.Object {
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	deployment, template := r.meta(r.name), r.meta("")
	if r.leads != "" {
		deployment.Annotations = map[string]string{annotationLeads: r.leads}
	}
	if r.hash != "" {
		template.Annotations = map[string]string{annotationHash: r.hash}
	}
	r.service.Selector = r.selector().MatchLabels
	return append(r.before,
		&networkingv1.NetworkPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
			ObjectMeta: r.meta(r.name),
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: *r.selector(),
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
				Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: r.ingress}}, Egress: r.egress,
			},
		},
		&policyv1.PodDisruptionBudget{
			TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}, ObjectMeta: r.meta(r.name),
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
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: r.meta(r.name), Spec: r.service,
		},
	)
}
