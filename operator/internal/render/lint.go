package render

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// finding is an object of a release, with its errors.
type finding struct {
	source   *source
	ceiling  *drivers.Ceiling
	object   *unstructured.Unstructured
	subject  string
	op, hint string // "" for the defaults of manifests
	all      []error
}

func (f *finding) add(format string, args ...any) {
	f.all = append(f.all, fault.Errorf(fault.Refused, cmp.Or(f.op, "check manifest"), f.subject,
		cmp.Or(f.hint, "this differs from the known manifests of upstream: review it, and make the bundle again from one that you trust"),
		format, args...))
}

func (f *finding) when(wrong bool, format string, args ...any) {
	if wrong {
		f.add(format, args...)
	}
}

func (s *source) finding(o *unstructured.Unstructured, subject string) *finding {
	return &finding{source: s, ceiling: drivers.CeilingOf(s.driver), object: o, subject: subject}
}

// judge returns all errors in the objects of the manifests.
func (s *source) judge(one func(*finding)) error {
	var all []error
	for _, o := range s.objects {
		f := s.finding(o, s.name()+": "+RefOf(o).String())
		one(f)
		all = append(all, f.all...)
	}
	return fault.Join(all...)
}

// lint reports manifests beyond the driver's ceiling, which is part of the operator. It checks kinds, namespaces,
// names, permissions, programs and node access of pods, and images not in the lock.
func (s *source) lint() error {
	if drivers.CeilingOf(s.driver) == nil {
		return unknownDriver(matrix.ReleaseID{Driver: s.driver, Version: s.version})
	}
	return s.judge((*finding).lint)
}

func (f *finding) lint() {
	o := f.object
	kind, known := kinds[o.GetKind()]
	if !f.isPart(RefOf(o).String()) || !known || kind.group != o.GroupVersionKind().Group {
		f.add("is not part of the driver (%s)", o.GetAPIVersion())
		return
	}
	f.when(len(o.GetOwnerReferences()) > 0 || len(o.GetFinalizers()) > 0 || o.GetGenerateName() != "",
		"has owners, finalizers or a generated name")
	if kind.lint != nil {
		kind.lint(f)
	}
}

func (f *finding) isPart(ref string) bool {
	return slices.ContainsFunc(f.ceiling.Objects, func(r *regexp.Regexp) bool { return r.MatchString(ref) })
}

// kinds of objects that manifests may hold, with their group: another group may have a kind of that name.
var kinds = map[string]struct {
	group string
	lint  func(*finding)
}{
	"ServiceAccount": {}, "ConfigMap": {}, "Namespace": {},
	"Secret":                         {"", strictly((*finding).secret)},
	"Service":                        {"", strictly((*finding).service)},
	"ClusterRole":                    {rbacv1.GroupName, strictly((*finding).role)},
	"Role":                           {rbacv1.GroupName, strictly((*finding).role)},
	"ClusterRoleBinding":             {rbacv1.GroupName, strictly((*finding).binding)},
	"RoleBinding":                    {rbacv1.GroupName, strictly((*finding).binding)},
	"Deployment":                     {"apps", (*finding).workload},
	"DaemonSet":                      {"apps", (*finding).workload},
	"CSIDriver":                      {storagev1.GroupName, strictly((*finding).csiDriver)},
	"CustomResourceDefinition":       {apiextensionsv1.GroupName, loosely((*finding).crd)},
	"ValidatingWebhookConfiguration": {admissionv1.GroupName, loosely((*finding).webhooks)},
	"MutatingWebhookConfiguration":   {admissionv1.GroupName, loosely((*finding).webhooks)},
	"APIService":                     {"apiregistration.k8s.io", (*finding).apiService},
}

// strictly reads an object into its type for a rule. A field that the type lacks cannot be checked, so it is a
// finding.
func strictly[T any](rule func(*finding, *T)) func(*finding) {
	return func(f *finding) { as(f, f.object.Object, true, rule) }
}

// loosely ignores fields that the type lacks: they do not matter here.
func loosely[T any](rule func(*finding, *T)) func(*finding) {
	return func(f *finding) { as(f, f.object.Object, false, rule) }
}

func as[T any](f *finding, content map[string]any, strict bool, rule func(*finding, *T)) {
	var into T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, &into, strict); err != nil {
		f.add("cannot be read: %w", err)
		return
	}
	rule(f, &into)
}

// role judges a ClusterRole, which has all fields of a Role.
func (f *finding) role(role *rbacv1.ClusterRole) {
	f.when(role.AggregationRule != nil, "takes the rules of other roles (aggregationRule)")
	for label := range role.Labels {
		f.when(strings.Contains(label, "rbac.authorization.k8s.io/aggregate-to-") &&
			(f.ceiling.Aggregated == nil || !f.ceiling.Aggregated.MatchString(role.Name)),
			"adds its rules to a built-in role (label %s)", label)
	}
	for _, rule := range role.Rules {
		for _, right := range f.ceiling.Excess(role.Name, rule) {
			f.add("may %s", right)
		}
	}
}

// binding judges a ClusterRoleBinding, which has all fields of a RoleBinding.
func (f *finding) binding(b *rbacv1.ClusterRoleBinding) {
	role := b.RoleRef.Kind + " " + b.RoleRef.Name
	if b.RoleRef.Kind == "Role" {
		role = "Role " + b.Namespace + "/" + b.RoleRef.Name
	}
	f.when(!f.isPart(role) && !slices.Contains(f.ceiling.ForeignRoles, role), "gives the permissions of %s", role)
	for _, s := range b.Subjects {
		f.when(!f.knows(s, b.Namespace), "gives permissions to %s %s", s.Kind,
			strings.TrimPrefix(s.Namespace+"/"+s.Name, "/"))
	}
}

func (f *finding) knows(s rbacv1.Subject, namespace string) bool {
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		return slices.Contains(f.ceiling.Accounts, cmp.Or(s.Namespace, namespace)+"/"+s.Name)
	case rbacv1.UserKind:
		return slices.Contains(f.ceiling.Users, s.Name)
	}
	return false
}

func (f *finding) service(s *corev1.Service) {
	f.when(s.Spec.Type != "" && s.Spec.Type != corev1.ServiceTypeClusterIP, "is of type %s", s.Spec.Type)
	f.when(len(s.Spec.ExternalIPs) > 0 || s.Spec.ExternalName != "", "answers for addresses outside of the cluster")
	f.when(len(s.Spec.Selector) == 0, "selects no pods: anybody could give it endpoints")
}

// webhookClient is the target of requests; upstream's CA bundle is a placeholder that no type can read.
type webhookClient struct {
	URL     *string                       `json:"url"`
	Service *admissionv1.ServiceReference `json:"service"`
}

// webhookList has the checked fields of mutating and validating webhooks.
type webhookList struct {
	Webhooks []struct {
		Name         string                           `json:"name"`
		ClientConfig webhookClient                    `json:"clientConfig"`
		Rules        []admissionv1.RuleWithOperations `json:"rules"`
	} `json:"webhooks"`
}

func (f *finding) webhooks(c *webhookList) {
	for _, w := range c.Webhooks {
		switch cc := w.ClientConfig; {
		case cc.URL != nil:
			f.add("webhook %s sends objects to a URL", w.Name)
		case cc.Service == nil || !f.serves(cc.Service.Namespace, cc.Service.Name):
			f.add("webhook %s sends objects to a service that is not part of the driver", w.Name)
		}
		for _, r := range w.Rules {
			for _, g := range r.APIGroups {
				f.when(!slices.Contains(f.ceiling.WebhookGroups, g) || slices.ContainsFunc(r.Resources, seesSecrets),
					"webhook %s sees %s in API group %q", w.Name, strings.Join(r.Resources, ", "), g)
			}
		}
	}
}

func (f *finding) serves(namespace, name string) bool {
	return slices.Contains(f.ceiling.Services, namespace+"/"+name)
}

func seesSecrets(resource string) bool {
	return strings.Contains(resource, "*") || strings.HasPrefix(resource, "secrets")
}

// crd checks names and conversion. It leaves schemas to the API server, which may know more of them.
func (f *finding) crd(crd *apiextensionsv1.CustomResourceDefinition) {
	defines := crd.Spec.Names.Plural + "." + crd.Spec.Group
	f.when(crd.Name != defines, "is named unlike what it defines: %s", defines)
	conversion := crd.Spec.Conversion
	if conversion == nil || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil {
		return
	}
	cc := conversion.Webhook.ClientConfig
	f.when(cc.URL != nil || cc.Service == nil || !f.serves(cc.Service.Namespace, cc.Service.Name),
		"sends objects for conversion to what is not part of the driver")
}

func (f *finding) apiService() {
	service, _, _ := unstructured.NestedStringMap(f.object.Object, "spec", "service")
	f.when(!f.serves(service["namespace"], service["name"]), "is served by what is not part of the driver")
	group, _, _ := unstructured.NestedString(f.object.Object, "spec", "group")
	version, _, _ := unstructured.NestedString(f.object.Object, "spec", "version")
	f.when(f.object.GetName() != version+"."+group, "is named unlike what it serves: %s.%s", version, group)
	skip, _, _ := unstructured.NestedBool(f.object.Object, "spec", "insecureSkipTLSVerify")
	f.when(skip, "turns the check of its server's certificate off")
}

func (f *finding) csiDriver(d *storagev1.CSIDriver) {
	f.when(len(d.Spec.TokenRequests) > 0, "asks for tokens of other pods' accounts")
}

// secret refuses Secrets with content, except the cloud provider's sample, which is replaced. The cluster fills
// Antrea's.
func (f *finding) secret(s *corev1.Secret) {
	if s.Namespace == CPINamespace && s.Name == CPISecret {
		return
	}
	account := s.Namespace + "/" + s.Annotations[corev1.ServiceAccountNameKey]
	f.when(s.Type != corev1.SecretTypeServiceAccountToken || !slices.Contains(f.ceiling.Accounts, account) ||
		len(s.Data)+len(s.StringData) > 0, "is not a token of one of the driver's own accounts")
}

func (f *finding) workload() {
	content, _, _ := unstructured.NestedFieldNoCopy(f.object.Object, "spec", "template")
	template, ok := content.(map[string]any)
	if !ok {
		f.add("has no pod template")
		return
	}
	as(f, template, true, func(f *finding, t *corev1.PodTemplateSpec) {
		p := f.ceiling.Pods[RefOf(f.object).String()]
		f.pods(p, t.Spec)
		for _, v := range t.Spec.Volumes {
			f.volume(p, v)
		}
		for _, c := range slices.Concat(t.Spec.InitContainers, t.Spec.Containers) {
			f.container(p, c)
			if _, err := f.source.digest(c.Image); err != nil {
				op, hint := cmp.Or(f.op, "pin image"), cmp.Or(f.hint, fault.HintOf(err))
				f.all = append(f.all, fault.Errorf(fault.Untrusted, op, f.subject, hint,
					"container %s has image %q, which the bundle does not hold", c.Name, c.Image))
			}
		}
	})
}

func (f *finding) pods(p drivers.Pods, spec corev1.PodSpec) {
	f.when(len(spec.Containers) == 0, "has no container")
	for _, account := range []string{spec.ServiceAccountName, spec.DeprecatedServiceAccount} {
		f.when(account != "" && account != p.Account, "runs as ServiceAccount %s", account)
	}
	f.when(spec.HostNetwork && !p.HostNetwork, "uses the node's network")
	f.when(spec.HostPID || spec.HostIPC, "sees the node's processes")
	f.when(spec.NodeName != "" || len(spec.EphemeralContainers) > 0 || len(spec.HostAliases) > 0,
		"names a node, host aliases or ephemeral containers")
	if sc := spec.SecurityContext; sc != nil {
		f.when(len(sc.Sysctls) > 0, "sets sysctls")
		f.when(hostProcess(sc.WindowsOptions) && !p.HostProcess, "runs as a process of the node")
	}
}

func hostProcess(w *corev1.WindowsSecurityContextOptions) bool {
	return w != nil && ptr.Deref(w.HostProcess, false)
}

func (f *finding) volume(p drivers.Pods, v corev1.Volume) {
	switch {
	case v.HostPath != nil:
		f.when(!slices.Contains(p.HostPaths, v.HostPath.Path), "mounts %s of the node", v.HostPath.Path)
	case v.Secret != nil:
		f.when(!slices.Contains(p.Secrets, v.Secret.SecretName), "mounts Secret %s", v.Secret.SecretName)
	case v.ConfigMap != nil, v.EmptyDir != nil:
	default:
		f.add("has volume %s of a kind that the driver does not need", v.Name)
	}
}

func (f *finding) container(p drivers.Pods, c corev1.Container) {
	f.when(len(c.EnvFrom) > 0, "container %s takes its environment from an object", c.Name)
	for _, e := range c.Env {
		f.when(e.ValueFrom != nil && e.ValueFrom.FieldRef == nil && e.ValueFrom.ResourceFieldRef == nil,
			"container %s takes variable %s from an object", c.Name, e.Name)
		f.when(divertsTraffic(e.Name), "container %s sets variable %s, which overrides the configuration", c.Name, e.Name)
	}
	f.commands(p, c)
	sc := c.SecurityContext
	if sc == nil {
		return
	}
	privileged := slices.Contains(p.Privileged, c.Name)
	f.when(ptr.Deref(sc.Privileged, false) && !privileged, "container %s is privileged", c.Name)
	f.when(ptr.Deref(sc.AllowPrivilegeEscalation, false) && !privileged, "container %s may gain privileges", c.Name)
	if sc.Capabilities != nil {
		for _, capability := range sc.Capabilities.Add {
			f.when(!slices.Contains(p.Capabilities[c.Name], string(capability)),
				"container %s has capability %s", c.Name, capability)
		}
	}
	f.when(ptr.Deref(sc.ProcMount, corev1.DefaultProcMount) != corev1.DefaultProcMount,
		"container %s sees all of /proc", c.Name)
	f.when(hostProcess(sc.WindowsOptions) && !p.HostProcess, "container %s runs as a process of the node", c.Name)
}

// flag is an argument as drivers use them: no character with a meaning to a shell.
var flag = regexp.MustCompile(`^--?[A-Za-z0-9][A-Za-z0-9_-]*(=[A-Za-z0-9._,:/\\$()=*+-]*)?$`)

// commands allows the images' own programs with flags, and neither hooks nor other programs, even if the matrix
// lists them.
func (f *finding) commands(p drivers.Pods, c corev1.Container) {
	f.when(c.Lifecycle != nil, "container %s has hooks that run when it starts or stops", c.Name)
	f.when(len(c.VolumeDevices) > 0, "container %s has block devices", c.Name)
	f.when(len(c.Command) > 0 && !runs(p, c.Command), "container %s runs %q", c.Name, strings.Join(c.Command, " "))
	for _, a := range c.Args {
		f.when(!flag.MatchString(a), "container %s has the argument %q, which is not a flag", c.Name, a)
	}
	probes := []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe}
	for i, name := range []string{"liveness", "readiness", "startup"} {
		probe := probes[i]
		if probe == nil {
			continue
		}
		if probe.Exec != nil && !runs(p, probe.Exec.Command) {
			f.add("container %s runs %q as its %s probe", c.Name, strings.Join(probe.Exec.Command, " "), name)
		}
		f.when((probe.HTTPGet != nil && elsewhere(probe.HTTPGet.Host)) ||
			(probe.TCPSocket != nil && elsewhere(probe.TCPSocket.Host)),
			"container %s has a %s probe of another host", c.Name, name)
	}
}

// elsewhere reports whether a probe's host is neither the pod's nor the node's own.
func elsewhere(host string) bool {
	return host != "" && host != "localhost" && host != "127.0.0.1" && host != "::1"
}

// runs reports whether a command is a known one: whole, or followed by flags.
func runs(p drivers.Pods, command []string) bool {
	if slices.Contains(p.Commands, strings.Join(command, " ")) {
		return true
	}
	return len(command) > 0 && slices.Contains(p.Commands, command[0]) &&
		!slices.ContainsFunc(command[1:], func(a string) bool { return !flag.MatchString(a) })
}

// divertsTraffic reports whether a variable can redirect logins: VSPHERE_… and VCENTER_… override both drivers'
// files, and every Go program heeds proxies.
func divertsTraffic(name string) bool {
	upper := strings.ToUpper(name)
	return (strings.HasPrefix(upper, "VSPHERE_") && upper != "VSPHERE_CSI_CONFIG") ||
		strings.HasPrefix(upper, "VCENTER_") || strings.HasSuffix(upper, "_PROXY") ||
		strings.HasPrefix(upper, "LD_") || upper == "SSL_CERT_FILE" || upper == "SSL_CERT_DIR"
}

// checkChanged returns an error if a change goes too far. The object must keep its identity, containers, labels and
// selector, use the bundle's images, and stay below the driver's ceiling. Authors of VDOConfigs administer the
// operator, so nothing else is checked.
func (s *source) checkChanged(field string, was, is *unstructured.Unstructured) error {
	f := s.finding(is, field)
	f.op = "change drivers"
	f.hint = "leave that out of it: settings and patches change how the driver's objects run, and not what they are"
	if f.same(was); len(f.all) > 0 {
		return fault.Join(f.all...) // the lint of another object would mean nothing
	}
	f.lint()
	return fault.Join(f.all...)
}

// same adds findings for changes of the object's identity.
func (f *finding) same(was *unstructured.Unstructured) {
	is := f.object
	if RefOf(was) != RefOf(is) {
		f.add("it makes another object of it, %s", RefOf(is))
		return
	}
	for _, c := range containers(podSpec(was)) {
		name, _ := c["name"].(string)
		f.when(container(is, name) == nil, "it takes container %s away", name)
	}
	before, _, _ := unstructured.NestedFieldNoCopy(was.Object, "spec", "selector")
	after, _, _ := unstructured.NestedFieldNoCopy(is.Object, "spec", "selector")
	f.when(!reflect.DeepEqual(before, after), "it changes the selector")
	for _, at := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		before, _, _ := unstructured.NestedStringMap(was.Object, at...)
		after, _, err := unstructured.NestedStringMap(is.Object, at...)
		for k, v := range before {
			f.when(err != nil || after[k] != v, "it changes the label %s, which the manifest has", k)
		}
	}
}

// adoptImages lets an object name images of the bundle that the release's own manifests do not, by their reference
// in the lock.
func (s *source) adoptImages(o *unstructured.Unstructured) {
	for _, c := range containers(podSpec(o)) {
		written, _ := c["image"].(string)
		if _, known := s.images[written]; !known && !s.digests[written].IsZero() {
			s.images[written] = written
		}
	}
}
