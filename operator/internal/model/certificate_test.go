package model

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

const webhookCerts = "vsphere-webhook-certs"

// leaves are the webhook's certificates that pods may serve: every one that was ever in the Secret.
type leaves struct {
	*scenario
	all map[string]*x509.Certificate
}

// accepted notes the leaf that is there now, and requires every leaf that counts to be
// one that the API server accepts.
func (l *leaves) accepted() {
	var secret corev1.Secret
	if l.Get(l.ctx, types.NamespacedName{Namespace: csiNamespace, Name: webhookCerts}, &secret) == nil {
		block, _ := pem.Decode(secret.Data["tls.crt"])
		leaf, err := x509.ParseCertificate(block.Bytes)
		require.NoError(l.t, err)
		l.all[leaf.SerialNumber.String()] = leaf
	}
	trusted := x509.NewCertPool()
	hook := get(l.scenario, &admissionv1.ValidatingWebhookConfiguration{}, "", "validation.csi.vsphere.vmware.com")
	require.True(l.t, trusted.AppendCertsFromPEM(hook.Webhooks[0].ClientConfig.CABundle))
	for serial, leaf := range l.all {
		if l.now.After(leaf.NotAfter) {
			continue
		}
		_, err := leaf.Verify(x509.VerifyOptions{Roots: trusted, DNSName: webhookcert.DNSName, CurrentTime: l.now})
		require.NoError(l.t, err, "the API server refuses the leaf %s of %s", serial, leaf.NotBefore)
	}
}

func (l *leaves) current() string {
	return string(get(l.scenario, &corev1.Secret{}, csiNamespace, webhookCerts).Data["tls.crt"])
}

// begun identifies the certificate that the webhook's pods begin with.
func (l *leaves) begun() string {
	webhook := get(l.scenario, &appsv1.Deployment{}, csiNamespace, "vsphere-csi-webhook")
	return webhook.Spec.Template.Annotations[render.AnnotationConfigHash]
}

// begins has the webhook's pods begin again for a cause.
func (l *leaves) begins() { l.touched["Deployment "+csiNamespace+"/vsphere-csi-webhook"] = true }

// due has so much time go by that a certificate is renewed.
func (l *leaves) due() {
	l.now = l.now.Add(61 * 24 * time.Hour)
	l.begins()
}

// away is a mirror and a copy that cannot be read.
type away struct{}

func (away) Contents(context.Context, *v1alpha1.DriverBundle) (*bundle.Contents, error) {
	return nil, errWire
}

// renewed looks until the certificate is another one, each other write failing, and requires all to be accepted
// before each write and in the end.
func (l *leaves) renewed() {
	l.due()
	was, began, fails := l.current(), l.begun(), false
	told := strings.Count(l.events.String(), "CertificateRenewed: ")
	l.meets(func(req *http.Request, _ string) int {
		if !isWrite(req) {
			return 0
		}
		l.accepted()
		if fails = !fails; fails {
			return http.StatusInternalServerError
		}
		return 0
	})
	for range 8 {
		writes := l.writes()
		if l.accepted(); len(writes) == 0 && was != l.current() {
			break
		}
	}
	l.meets(nil)
	l.look()
	require.NotEqual(l.t, was, l.current())
	require.NotEqual(l.t, began, l.begun(), "its pods start again")
	require.True(l.t, l.isTrue("WebhookCertificateValid"))
	require.Empty(l.t, l.writes(), "nothing is left to write")
	require.Greater(l.t, strings.Count(l.events.String(), "CertificateRenewed: "), told)
}

// However a VDOConfig is held up, and wherever a renewal is interrupted, the API server accepts every certificate
// that a pod may serve.
func TestTheWebhooksCertificateIsRenewedWhateverElseStands(t *testing.T) {
	scene(t, nothing, func(s *scenario) {
		s.configure(func(spec *asked) { spec.StorageProvider.Webhook = true })
		s.ready()
		s.look() // the registration is there: from now on the certificate is seen to
		l := &leaves{s, map[string]*x509.Certificate{}}
		l.accepted()

		s.configure(func(spec *asked) { spec.Suspend = true })
		l.renewed()
		s.configure(func(spec *asked) { spec.Suspend = false })
		was := s.op.drivers.Store
		s.op.drivers.Store = away{}
		l.renewed()
		s.op.drivers.Store = was
		cm := get(s, &corev1.ConfigMap{}, namespace, record.Name)
		data := cm.Data
		s.change(cm, func() { cm.Data = map[string]string{inventory.DataKey: "{"} })
		l.renewed()
		require.Equal(t, "Corrupt", s.cond("Ready").Reason)
		s.change(cm, func() { cm.Data = data })

		// The Secret is lost; its leaf is still served by the pods.
		l.begins()
		s.drop(get(s, &corev1.Secret{}, csiNamespace, webhookCerts))
		for range 2 {
			s.look()
			l.accepted()
		}

		// It cannot be renewed: that is reported a month before it matters.
		l.due()
		s.meets(func(_ *http.Request, name string) int {
			return map[string]int{webhookCerts: http.StatusForbidden}[name]
		})
		s.look()
		require.Equal(t, "Expiring", s.cond("WebhookCertificateValid").Reason)
		require.False(t, s.isTrue("Ready") || s.isTrue("WebhookCertificateValid"))
		l.accepted()
		s.meets(nil)
		s.ready()
		require.True(t, s.isTrue("WebhookCertificateValid"))
		l.accepted()
	})
}
