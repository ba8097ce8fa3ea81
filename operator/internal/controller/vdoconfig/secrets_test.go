package vdoconfig

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
)

// What drivers' pods know is known as a secret: passwords that are there, whether the
// vCenter let them in or not, and each form of the mirror's login.
func TestSecretsOfASite(t *testing.T) {
	pair := base64.StdEncoding.EncodeToString([]byte("robot:pull:word"))
	s := site{
		vcenters: map[string]vcenter{"vc": judgeVCenter(&v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Name: "vc"}}, credentials.Credentials{Password: "hunter2"}, nil)},
		login:    login{data: []byte(`{"auths":{"m":{"auth":"` + pair + `"},"n":{"username":"u","password":"plain","identitytoken":"idt","registrytoken":"rgt"}}}`)},
	}
	got := s.secrets()
	for _, want := range []string{"hunter2", pair, "pull:word", "plain", "idt", "rgt"} {
		require.Contains(t, got, want)
	}
	require.NotContains(t, got, "u")
	require.Empty(t, login{data: []byte("no JSON")}.secrets())
}
