package vdoconfig

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
)

func secretOf(data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"data": data}}
}

// What drivers' pods know is known as a secret: passwords that are there, whether the
// vCenter let them in or not, and each form of the mirror's login.
func TestSecretsOfASite(t *testing.T) {
	pair := base64.StdEncoding.EncodeToString([]byte("robot:pull:word"))
	s := site{
		vcenters: map[string]vcenter{"vc": judgeVCenter(&v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Name: "vc"}}, credentials.Credentials{Password: "hunter2"}, nil)},
		login:    login{data: []byte(`{"auths":{"m":{"auth":"` + pair + `"},"n":{"username":"u","password":"plain","identitytoken":"idt","registrytoken":"rgt"}}}`)},
	}
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	s.notePasswords(plan.Live{
		{Kind: "Secret", Namespace: "kube-system", Name: "vsphere-cloud-secret"}:        secretOf(map[string]any{"vc1.site.password": encoded("clouds"), "password_2": encoded("clouds2"), "vc1.site.username": encoded("u")}),
		{Kind: "Secret", Namespace: "vmware-system-csi", Name: "vsphere-config-secret"}: secretOf(map[string]any{"csi-vsphere.conf": encoded("[VirtualCenter \"vc1.site\"]\nuser = \"u\"\npassword = \"sto\\\"rage\"\n")}),
		copies[1]: secretOf(map[string]any{".dockerconfigjson": encoded(`{"auths":{"m":{"username":"u","password":"of the pods"}}}`)}),
	})
	s.cluster.FoundCloudConfig = []byte("vcenter:\n  vc1:\n    user: u\n    password: by hand\n")
	got := s.secrets()
	for _, want := range []string{"hunter2", "clouds", "clouds2", "sto\"rage", "by hand", pair, "pull:word", "plain", "idt", "rgt", "of the pods"} {
		require.Contains(t, got, want)
	}
	require.NotContains(t, got, "u")
	(&site{}).notePasswords(nil)
	require.Empty(t, login{data: []byte("no JSON")}.secrets())
}
