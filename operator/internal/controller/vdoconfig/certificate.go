package vdoconfig

import (
	"cmp"
	"context"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

// These objects hold a part of the webhook's certificate.
var (
	webhookSecret       = core("Secret", render.CSINamespace, render.WebhookSecret)
	webhookDeployment   = inventory.ID{Key: inventory.Key{Group: "apps", Kind: "Deployment", Namespace: render.CSINamespace, Name: drivers.Webhook}, Version: "v1"}
	webhookRegistration = inventory.ID{Key: inventory.Key{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration", Name: drivers.WebhookConfiguration}, Version: "v1"}
)

// keepCertificate renews the certificate of a registered webhook when it is due, also while suspended or gated. The API
// server's trust comes first, then the Secret, then the pods. Under dryRun it only reads. It finds its objects by name
// and label, also with an unreadable inventory, which it then does not write.
func (p *pass) keepCertificate(ctx context.Context, known bool) error {
	if _, installed := p.inventory.Get(webhookRegistration.Key); known && !installed {
		return nil
	}
	live, refused, err := p.Cluster.Read(ctx, []inventory.ID{webhookSecret, webhookDeployment, webhookRegistration})
	if err := joinAll(refused, err); err != nil {
		return err
	}
	registration, secret := own(live[webhookRegistration.Key], matrix.CSI), own(live[webhookSecret.Key], matrix.CSI)
	if registration == nil || (secret == nil && live[webhookSecret.Key] != nil) {
		return nil // the plan creates its parts in order, or reports a conflict
	}
	if p.config.Spec.DryRun {
		p.certificate, _ = webhookcert.Parse(secretData(secret)) // for the condition
		return nil
	}
	cert, renewed, err := webhookcert.Ensure(secretData(secret), render.CABundle(registration), p.now)
	if err != nil {
		return err
	}
	if kept, err := webhookcert.Parse(secretData(secret)); err == nil {
		p.certificate = kept // until the new one is in place
	}
	if err := p.applyCertificate(ctx, cert, registration, secret, known); err != nil {
		return err
	}
	p.certificate = cert
	if renewed {
		p.emit(corev1.EventTypeNormal, "CertificateRenewed", "Renew", "Renewed the certificate of the storage driver's "+
			"webhook until "+cert.EndsAt().UTC().Format(time.RFC3339))
	}
	if !known && !renewed {
		return nil // its pods may have another key, which the inventory knows
	}
	return p.rollWebhook(ctx, cert, own(live[webhookDeployment.Key], matrix.CSI))
}

// own returns an object with the operator's labels of a driver, else nil.
func own(o *unstructured.Unstructured, of matrix.Driver) *unstructured.Unstructured {
	if o == nil {
		return nil
	}
	if l := o.GetLabels(); l[render.LabelManagedBy] != render.ManagedBy || l[render.LabelDriver] != string(of) {
		return nil
	}
	return o
}

func (p *pass) applyCertificate(
	ctx context.Context, cert *webhookcert.Certificate, registration, secret *unstructured.Unstructured, known bool,
) error {
	if render.SetCABundle(registration, cert.CA) {
		if _, err := p.update(ctx, registration); err != nil {
			return err
		}
	}
	isNew, rendered := secret == nil, render.WebhookSecretOf(cert)
	switch {
	case isNew:
		secret = rendered
	case reflect.DeepEqual(secret.Object["data"], rendered.Object["data"]):
		return nil
	default:
		secret.Object["data"] = rendered.Object["data"]
	}
	written, err := p.update(ctx, secret)
	if err != nil || !isNew || !known {
		return err
	}
	e, ok := p.inventory.Get(webhookSecret.Key)
	if !ok {
		e = inventory.Entry{ID: webhookSecret, Driver: matrix.CSI}
	}
	e.UID = string(written.GetUID())
	return p.record(ctx, p.inventory.With(e))
}

// rollWebhook restarts the pods that started with another certificate.
func (p *pass) rollWebhook(ctx context.Context, cert *webhookcert.Certificate, deployment *unstructured.Unstructured) error {
	if deployment == nil || p.kept.key == nil {
		return nil
	}
	hash := render.WebhookHash(p.kept.key, cert)
	hash = cmp.Or(p.inventory.Memory().Hashes[hash], hash)
	was, _, _ := unstructured.NestedString(deployment.Object, configHash...) //nolint:errcheck // a non-string counts as another hash
	if was == hash {
		return nil
	}
	if err := unstructured.SetNestedField(deployment.Object, hash, configHash...); err != nil {
		return err
	}
	_, err := p.update(ctx, deployment)
	return err
}

func (p *pass) update(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	written, err := p.Cluster.Amend(ctx, o)
	if err == nil {
		log.FromContext(ctx).Info("changed", "object", plan.IDOf(o).Key.String(), "reason", "certificate")
	}
	return written, err
}

func secretData(secret *unstructured.Unstructured) map[string][]byte {
	var typed corev1.Secret
	if secret == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(secret.Object, &typed) != nil {
		return nil
	}
	return typed.Data
}
