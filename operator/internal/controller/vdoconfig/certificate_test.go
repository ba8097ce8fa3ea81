package vdoconfig_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

// leaves are the webhook's certificates that pods may serve: every one that was ever in the Secret.
type leaves struct {
	w   *world
	all map[string]*x509.Certificate
}

// look notes the leaf that is there now, and requires every leaf that counts to be
// one that the API server accepts.
func (l *leaves) look() {
	l.w.t.Helper()
	var secret corev1.Secret
	err := l.w.Get(context.Background(), types.NamespacedName{Namespace: "vmware-system-csi", Name: "vsphere-webhook-certs"}, &secret)
	if !apierrors.IsNotFound(err) {
		require.NoError(l.w.t, err)
		block, _ := pem.Decode(secret.Data["tls.crt"])
		require.NotNil(l.w.t, block)
		leaf, err := x509.ParseCertificate(block.Bytes)
		require.NoError(l.w.t, err)
		l.all[leaf.SerialNumber.String()] = leaf
	}
	trusted := x509.NewCertPool()
	hooks := get(l.w, &admissionv1.ValidatingWebhookConfiguration{}, "", "validation.csi.vsphere.vmware.com").Webhooks
	require.NotEmpty(l.w.t, hooks)
	require.True(l.w.t, trusted.AppendCertsFromPEM(hooks[0].ClientConfig.CABundle))
	for serial, leaf := range l.all {
		if l.w.now.After(leaf.NotAfter) {
			continue
		}
		_, err := leaf.Verify(x509.VerifyOptions{Roots: trusted, DNSName: webhookcert.DNSName, CurrentTime: l.w.now})
		require.NoError(l.w.t, err, "the API server refuses the leaf %s of %s", serial, leaf.NotBefore)
	}
}

func (l *leaves) current() string {
	l.w.t.Helper()
	return string(get(l.w, &corev1.Secret{}, "vmware-system-csi", "vsphere-webhook-certs").Data["tls.crt"])
}

func webhookPods(w *world) string {
	return get(w, &appsv1.Deployment{}, "vmware-system-csi", "vsphere-csi-webhook").Spec.Template.Annotations[render.AnnotationConfigHash]
}

// However a VDOConfig is held up, and wherever a renewal is interrupted, the API server accepts every certificate
// that a pod may serve.
func TestTheWebhooksCertificateIsRenewedWhateverElseStands(t *testing.T) {
	w := start(t, pair)
	v := w.config("site")
	w.change(v, func() { v.Spec.StorageProvider.Webhook = true })
	w.ready(v)
	w.look(v) // the registration is there: from now on the certificate is seen to
	l := &leaves{w: w, all: map[string]*x509.Certificate{}}
	l.look()
	require.Equal(t, metav1.ConditionTrue, cond(t, v, "WebhookCertificateValid").Status)
	record := get(w, &corev1.ConfigMap{}, w.ns, inventory.VDOConfigs.ConfigMap(v.Name))
	data := record.Data
	for _, begins := range []func(){
		func() { w.change(v, func() { v.Spec.Suspend = true }) },
		func() { w.change(v, func() { v.Spec.Suspend = false }); w.store.err = errors.New("the mirror is away") },
		func() { w.change(record, func() { record.Data = map[string]string{inventory.DataKey: "{"} }) },
	} {
		begins()
		w.ahead += due
		l.renewed(v)
	}
	require.Equal(t, "Corrupt", cond(t, v, "Ready").Reason)
	w.change(record, func() { record.Data = data })
	w.store.err = nil

	// The Secret is lost; its leaf is still served by the pods.
	require.NoError(t, w.Delete(t.Context(), get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-webhook-certs")))
	for range 2 {
		w.look(v)
		l.look()
	}

	// It cannot be renewed: that is reported a month before it matters.
	w.deny = func(_, name string) error {
		if name == "vsphere-webhook-certs" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, name, errors.New("no"))
		}
		return nil
	}
	w.ahead += due
	w.look(v)
	c := cond(t, v, "WebhookCertificateValid")
	require.Equal(t, []string{"False", "Expiring"}, []string{string(c.Status), c.Reason})
	require.False(t, isTrue(v, "Ready"))
	l.look()
	w.deny = nil
	w.ready(v)
	require.True(t, isTrue(v, "WebhookCertificateValid"))
	l.look()
	w.ahead = 0
}

// due is after how long a certificate is renewed.
const due = 61 * 24 * time.Hour

// renewed looks until the certificate is another one, each write but the n-th failing first, and requires all to be
// accepted before each write and in the end.
func (l *leaves) renewed(v *v1alpha1.VDOConfig) {
	w, t := l.w, l.w.t
	t.Helper()
	was, pods, stop := l.current(), webhookPods(w), w.writes+1
	w.fail = func(n int) error {
		if l.look(); n < stop {
			return nil
		}
		stop = n + 2 // the next one goes through, the one behind it fails
		return errors.New("connection reset by peer")
	}
	for range 8 {
		before := w.writes
		w.look(v)
		l.look()
		if was != l.current() && w.writes == before {
			break // renewed, and nothing is left to write
		}
	}
	w.fail = nil
	w.look(v)
	require.NotEqual(t, was, l.current(), describe(v))
	require.NotEqual(t, pods, webhookPods(w), "the pods begin anew with it")
	require.True(t, isTrue(v, "WebhookCertificateValid"), describe(v))
	require.Contains(t, w.events.all(), "CertificateRenewed: ")
	before := w.writes
	w.look(v)
	require.Equal(t, before, w.writes, "nothing is left to write")
}
