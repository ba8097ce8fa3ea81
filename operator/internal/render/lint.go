package render

import (
	"cmp"
	"errors"
	"fmt"
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

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// Lint reports everything in a release's manifests that the matrix does not list of
// it, and, whatever is listed, everything beyond the ceiling of the driver, which is
// part of the operator: kinds, namespaces and names; rights; what pods run and may
// reach on the node; images that the lock does not hold. Manifests are keyed
// DRIVER/VERSION/FILE as in bundle.Contents; only those of the release are read. The
// document is the bundle's matrix.
func Lint(lock *bundle.Lock, manifests map[string][]byte, id matrix.ReleaseID, doc *matrix.Document) error {
	src, err := load(lock, manifests, id)
	if err != nil {
		return err
	}
	list, err := listOf(src.release, id, doc)
	var none *unlisted
	if errors.As(err, &none) {
		return fault.Join(src.lint(), none.fault())
	}
	if err != nil {
		return err
	}
	return fault.Join(src.lint(), src.checkList(list))
}

// finding collects what is wrong with one object.
type finding struct {
	op      string // "": check manifest
	subject string
	hint    string // "": what to do about a manifest
	all     []error
}

func (f *finding) add(format string, args ...any) {
	f.all = append(f.all, &fault.Error{
		Reason: fault.Refused, Op: cmp.Or(f.op, "check manifest"), Subject: f.subject,
		Hint: cmp.Or(f.hint, "this is not upstream's manifest as it is known: look at it, and make the bundle again from one that you trust"),
		Err:  fmt.Errorf(format, args...),
	})
}

func (s *source) lint() error {
	p := drivers.CeilingOf(s.driver)
	if p == nil {
		return unknownDriver(matrix.ReleaseID{Driver: s.driver, Version: s.version})
	}
	var all []error
	for _, o := range s.objects {
		f := &finding{subject: s.name() + ": " + RefOf(o).String()}
		s.lintObject(p, o, f)
		all = append(all, f.all...)
	}
	return fault.Join(all...)
}

func (s *source) lintObject(p *drivers.Ceiling, o *unstructured.Unstructured, f *finding) {
	ref := RefOf(o).String()
	if !slices.ContainsFunc(p.Objects, matches(ref)) || !knownGroup(o) {
		f.add("is not part of the driver (%s)", o.GetAPIVersion())
		return
	}
	if len(o.GetOwnerReferences()) > 0 || len(o.GetFinalizers()) > 0 || o.GetGenerateName() != "" {
		f.add("has owners, finalizers or a generated name")
	}
	switch o.GetKind() {
	case "ClusterRole", "Role":
		lintRole(p, o, f)
	case "ClusterRoleBinding", "RoleBinding":
		lintBinding(p, o, f)
	case "Deployment", "DaemonSet":
		s.lintPods(p.Pods[ref], o, f)
	case "Service":
		lintService(o, f)
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		lintWebhooks(p, o, f)
	case "CustomResourceDefinition":
		lintCRD(p, o, f)
	case "APIService":
		lintAPIService(p, o, f)
	case "CSIDriver":
		lintCSIDriver(o, f)
	case "Secret":
		lintSecret(p, o, f)
	}
}

func matches(s string) func(*regexp.Regexp) bool {
	return func(r *regexp.Regexp) bool { return r.MatchString(s) }
}

// groups that objects of each kind are in: a kind of that name in another group
// is another thing.
var groups = map[string]string{
	"ServiceAccount": "", "Secret": "", "ConfigMap": "", "Service": "", "Namespace": "",
	"ClusterRole": rbacv1.GroupName, "ClusterRoleBinding": rbacv1.GroupName,
	"Role": rbacv1.GroupName, "RoleBinding": rbacv1.GroupName,
	"Deployment": "apps", "DaemonSet": "apps",
	"CSIDriver":                      storagev1.GroupName,
	"CustomResourceDefinition":       apiextensionsv1.GroupName,
	"ValidatingWebhookConfiguration": admissionv1.GroupName,
	"MutatingWebhookConfiguration":   admissionv1.GroupName,
	"APIService":                     "apiregistration.k8s.io",
}

func knownGroup(o *unstructured.Unstructured) bool {
	group, ok := groups[o.GetKind()]
	return ok && group == o.GroupVersionKind().Group
}

// as reads an object into its type. A field that the type does not have cannot be
// judged, and so is a finding.
func as(o map[string]any, into any, f *finding) bool {
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o, into, true)
	if err != nil {
		f.add("cannot be read: %w", err)
	}
	return err == nil
}

func lintRole(p *drivers.Ceiling, o *unstructured.Unstructured, f *finding) {
	var role rbacv1.ClusterRole // has all fields of a Role
	if !as(o.Object, &role, f) {
		return
	}
	if role.AggregationRule != nil {
		f.add("takes the rules of other roles (aggregationRule)")
	}
	for label := range role.Labels {
		if strings.Contains(label, "rbac.authorization.k8s.io/aggregate-to-") &&
			(p.Aggregated == nil || !p.Aggregated.MatchString(role.Name)) {
			f.add("adds its rules to a built-in role (label %s)", label)
		}
	}
	for _, rule := range role.Rules {
		lintRule(p.Grants[role.Name], rule, f)
	}
}

func lintRule(grants []drivers.Grant, rule rbacv1.PolicyRule, f *finding) {
	for _, url := range rule.NonResourceURLs {
		for _, verb := range rule.Verbs {
			if (strings.Contains(url, "*") || verb == "*") && !granted(grants, "", url, verb, nil) {
				f.add("may %s %s", verb, url)
			}
		}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				if sensitive(group, resource, verb) && !granted(grants, group, resource, verb, rule.ResourceNames) {
					f.add("may %s %s%s", verb, resource, inGroup(group))
				}
			}
		}
	}
}

func inGroup(group string) string {
	if group == "" {
		return ""
	}
	return " in " + group
}

func granted(grants []drivers.Grant, group, resource, verb string, names []string) bool {
	return slices.ContainsFunc(grants, func(g drivers.Grant) bool {
		return g.Group == group && g.Resource == resource && (slices.Contains(g.Verbs, verb) || slices.Contains(g.Verbs, "*")) &&
			(g.Names == nil || (len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return !g.Names.MatchString(n) })))
	})
}

// sensitive tells rights by which more rights can be had, or other people's
// secrets, or the nodes.
func sensitive(group, resource, verb string) bool {
	if group == "*" || strings.Contains(resource, "*") || verb == "*" {
		return true
	}
	switch verb {
	case "escalate", "bind", "impersonate", "approve", "sign", "use":
		return true
	}
	reads := verb == "get" || verb == "list" || verb == "watch"
	base, sub, _ := strings.Cut(resource, "/")
	switch group {
	case "":
		switch base {
		case "secrets":
			return true
		case "pods", "nodes", "services":
			return sub == "exec" || sub == "attach" || sub == "portforward" || sub == "proxy" || sub == "ephemeralcontainers" ||
				(sub == "" && base != "services" && !reads)
		case "serviceaccounts", "configmaps", "namespaces", "persistentvolumes", "replicationcontrollers":
			return !reads
		}
		return false
	case "apps", "batch", "extensions", rbacv1.GroupName, admissionv1.GroupName,
		apiextensionsv1.GroupName, "apiregistration.k8s.io", "certificates.k8s.io", "policy":
		return !reads
	}
	return false
}

func lintBinding(p *drivers.Ceiling, o *unstructured.Unstructured, f *finding) {
	var b rbacv1.ClusterRoleBinding // has all fields of a RoleBinding
	if !as(o.Object, &b, f) {
		return
	}
	role := b.RoleRef.Kind + " " + b.RoleRef.Name
	if b.RoleRef.Kind == "Role" {
		role = "Role " + b.Namespace + "/" + b.RoleRef.Name
	}
	if !slices.ContainsFunc(p.Objects, matches(role)) && !slices.Contains(p.ForeignRoles, role) {
		f.add("gives the rights of %s", role)
	}
	for _, s := range b.Subjects {
		if !knows(p, s, b.Namespace) {
			f.add("gives rights to %s %s", s.Kind, strings.TrimPrefix(s.Namespace+"/"+s.Name, "/"))
		}
	}
}

func knows(p *drivers.Ceiling, s rbacv1.Subject, namespace string) bool {
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		return slices.Contains(p.Accounts, namespace+"/"+s.Name)
	case rbacv1.UserKind:
		return slices.Contains(p.Users, s.Name)
	}
	return false
}

func lintService(o *unstructured.Unstructured, f *finding) {
	var s corev1.Service
	if !as(o.Object, &s, f) {
		return
	}
	if s.Spec.Type != "" && s.Spec.Type != corev1.ServiceTypeClusterIP {
		f.add("is of type %s", s.Spec.Type)
	}
	if len(s.Spec.ExternalIPs) > 0 || s.Spec.ExternalName != "" {
		f.add("answers for addresses outside of the cluster")
	}
	if len(s.Spec.Selector) == 0 {
		f.add("selects no pods: anybody could give it endpoints")
	}
}

func lintWebhooks(p *drivers.Ceiling, o *unstructured.Unstructured, f *finding) {
	// Mutating and validating webhooks share the fields that matter here.
	var c struct {
		Webhooks []struct {
			Name         string                           `json:"name"`
			ClientConfig admissionv1.WebhookClientConfig  `json:"clientConfig"`
			Rules        []admissionv1.RuleWithOperations `json:"rules"`
		} `json:"webhooks"`
	}
	object := o.DeepCopy()
	dropPlaceholderBundles(object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &c); err != nil {
		f.add("cannot be read: %w", err)
		return
	}
	for _, w := range c.Webhooks {
		switch cc := w.ClientConfig; {
		case cc.URL != nil:
			f.add("webhook %s sends objects to a URL", w.Name)
		case cc.Service == nil || !slices.Contains(p.Services, cc.Service.Namespace+"/"+cc.Service.Name):
			f.add("webhook %s sends objects to a service that is not part of the driver", w.Name)
		}
		for _, r := range w.Rules {
			for _, g := range r.APIGroups {
				if !slices.Contains(p.WebhookGroups, g) || slices.ContainsFunc(r.Resources, seesSecrets) {
					f.add("webhook %s sees %s in API group %q", w.Name, strings.Join(r.Resources, ", "), g)
				}
			}
		}
	}
}

func seesSecrets(resource string) bool {
	return strings.Contains(resource, "*") || strings.HasPrefix(resource, "secrets")
}

func lintCRD(p *drivers.Ceiling, o *unstructured.Unstructured, f *finding) {
	var crd apiextensionsv1.CustomResourceDefinition
	// Schemas may have fields of newer API servers: those are theirs to judge.
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &crd); err != nil {
		f.add("cannot be read: %w", err)
		return
	}
	if crd.Name != crd.Spec.Names.Plural+"."+crd.Spec.Group {
		f.add("is named unlike what it defines: %s.%s", crd.Spec.Names.Plural, crd.Spec.Group)
	}
	if crd.Spec.Conversion == nil || crd.Spec.Conversion.Webhook == nil || crd.Spec.Conversion.Webhook.ClientConfig == nil {
		return
	}
	cc := crd.Spec.Conversion.Webhook.ClientConfig
	if cc.URL != nil || cc.Service == nil || !slices.Contains(p.Services, cc.Service.Namespace+"/"+cc.Service.Name) {
		f.add("sends objects for conversion to what is not part of the driver")
	}
}

func lintAPIService(p *drivers.Ceiling, o *unstructured.Unstructured, f *finding) {
	service, _, _ := unstructured.NestedStringMap(o.Object, "spec", "service")
	if !slices.Contains(p.Services, service["namespace"]+"/"+service["name"]) {
		f.add("is served by what is not part of the driver")
	}
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	version, _, _ := unstructured.NestedString(o.Object, "spec", "version")
	if o.GetName() != version+"."+group {
		f.add("is named unlike what it serves: %s.%s", version, group)
	}
	if skip, _, _ := unstructured.NestedBool(o.Object, "spec", "insecureSkipTLSVerify"); skip {
		f.add("turns the check of its server's certificate off")
	}
}

func lintCSIDriver(o *unstructured.Unstructured, f *finding) {
	var d storagev1.CSIDriver
	if !as(o.Object, &d, f) {
		return
	}
	if len(d.Spec.TokenRequests) > 0 {
		f.add("asks for tokens of other pods' accounts")
	}
}

// lintSecret lets no Secret's content pass: the cloud provider's sample is
// replaced, and Antrea's are filled by the cluster.
func lintSecret(p *drivers.Ceiling, o *unstructured.Unstructured, f *finding) {
	var s corev1.Secret
	if !as(o.Object, &s, f) {
		return
	}
	if o.GetNamespace() == CPINamespace && o.GetName() == CPISecret {
		return
	}
	account := s.Namespace + "/" + s.Annotations[corev1.ServiceAccountNameKey]
	if s.Type != corev1.SecretTypeServiceAccountToken || !slices.Contains(p.Accounts, account) || len(s.Data)+len(s.StringData) > 0 {
		f.add("is not a token of one of the driver's own accounts")
	}
}
