package render

import (
	"encoding/base64"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

func (r *renderer) checkWebhook(s *source, p *v1alpha1.StorageProvider) error {
	if !p.Webhook {
		return nil
	}
	var err error
	if c := r.in.Webhook; c == nil || len(c.CA) == 0 || len(c.Cert) == 0 || len(c.Key) == 0 {
		err = fault.Errorf(fault.Internal, "configure", s.name(), "", "the webhook's certificate was not made")
	}
	return fault.Join(err, s.requires("Deployment "+drivers.Webhook, "Service "+drivers.WebhookService,
		"ValidatingWebhookConfiguration "+drivers.WebhookConfiguration))
}

// placeWebhook places the webhook's pods before its registration, which refuses changes of StorageClasses while no
// pod answers.
func (r *renderer) placeWebhook(s *source, o *unstructured.Unstructured) {
	switch o.GetKind() {
	case "Deployment":
		r.add(s, StageConfig, WebhookSecretOf(r.in.Webhook), Replace)
		setTemplateAnnotation(o, AnnotationConfigHash, WebhookHash(r.in.HashKey, r.in.Webhook))
		r.letOpenShiftChooseUser(o)
		r.add(s, StageWebhookServer, o, Merge)
	case "Service":
		r.add(s, StageWebhookServer, o, Merge)
	case "ValidatingWebhookConfiguration":
		SetCABundle(o, r.in.Webhook.CA)
		r.add(s, StageWebhook, o, Merge)
	default:
		r.add(s, StageConfig, o, Merge)
	}
}

// WebhookSecretOf returns the webhook's Secret, without the label of a release.
func WebhookSecretOf(c *webhookcert.Certificate) *unstructured.Unstructured {
	o := secret(CSINamespace, WebhookSecret, "Opaque", webhookData(c))
	o.SetLabels(map[string]string{LabelManagedBy: ManagedBy, LabelDriver: string(matrix.CSI)})
	return o
}

func webhookData(c *webhookcert.Certificate) map[string][]byte {
	data := c.Data()
	data["webhook.config"] = []byte(webhookConfig())
	return data
}

// WebhookHash returns the annotation [AnnotationConfigHash] of the webhook's pods.
func WebhookHash(key []byte, c *webhookcert.Certificate) string {
	return configHash(key, webhookData(c))
}

// SetCABundle makes all webhooks of a registration trust a CA, PEM, and reports whether that changed it.
func SetCABundle(o *unstructured.Unstructured, ca []byte) bool {
	changed, text := false, base64.StdEncoding.EncodeToString(ca)
	eachWebhook(o, func(client map[string]any) {
		changed = changed || client["caBundle"] != text
		client["caBundle"] = text
	})
	return changed
}

// CABundle returns the CA bundle of a registration's first webhook that has one, in PEM.
func CABundle(o *unstructured.Unstructured) []byte {
	var ca []byte
	eachWebhook(o, func(client map[string]any) {
		text, _ := client["caBundle"].(string) //nolint:errcheck // no text is no bundle
		if data, err := base64.StdEncoding.DecodeString(text); err == nil && ca == nil {
			ca = data
		}
	})
	return ca
}

func webhookConfig() string {
	w := &ini{}
	w.section("WebHookConfig", "")
	w.set("port", "8443")
	w.set("cert-file", "/run/secrets/tls/tls.crt")
	w.set("key-file", "/run/secrets/tls/tls.key")
	return w.String()
}

func eachWebhook(o *unstructured.Unstructured, do func(client map[string]any)) {
	for _, webhook := range items(o.Object["webhooks"]) {
		if client, ok := webhook["clientConfig"].(map[string]any); ok {
			do(client)
		}
	}
}

func partOfWebhook(kind, name string) bool {
	return kind == "ValidatingWebhookConfiguration" || name == "vsphere-webhook-svc" ||
		strings.HasPrefix(name, drivers.Webhook)
}
