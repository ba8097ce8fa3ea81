package credentials_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
)

func TestTheSecretAndTheCAAreReadWhereTheyAre(t *testing.T) {
	secret := func(namespace, name string, data ...string) client.Object {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
		for i := 0; i < len(data); i += 2 {
			s.Data[data[i]] = []byte(data[i+1])
		}
		return s
	}
	account := secret("ns", "creds", "username", "vdo@site\n", "password", "own\r\n")
	account.SetAnnotations(map[string]string{credentials.EndsAnnotation: "vdo@site 2027-01-14"})
	ca := func(key string) client.Object {
		in := metav1.ObjectMeta{Namespace: "ns", Name: "ca"}
		return &corev1.ConfigMap{ObjectMeta: in, Data: map[string]string{key: "PEM"}}
	}
	inMap, inSecret := &v1alpha1.KeyReference{ConfigMap: "ca"}, &v1alpha1.KeyReference{Secret: "ca", Key: "root"}
	for name, c := range map[string]struct {
		objects      []client.Object
		ca           *v1alpha1.KeyReference
		password, is string // the CA
		says         string // the fault, which is one of NotFound; "" for none
	}{
		"no Secret":            {says: "kubectl -n ns create secret generic creds"},
		"in kube-system":       {objects: []client.Object{secret("kube-system", "creds", "password", "other")}, password: "other"},
		"its own one first":    {objects: []client.Object{secret("kube-system", "creds", "password", "other"), account}, password: "own"},
		"no CA":                {objects: []client.Object{account}, ca: inMap, password: "own", says: "ns/ca"},
		"no key in it":         {objects: []client.Object{account, ca("x")}, ca: inMap, password: "own", says: "no key ca.crt"},
		"a CA in a ConfigMap":  {objects: []client.Object{account, ca("ca.crt")}, ca: inMap, password: "own", is: "PEM"},
		"in a key of a Secret": {objects: []client.Object{account, secret("ns", "ca", "root", "PEM2")}, ca: inSecret, password: "own", is: "PEM2"},
	} {
		t.Run(name, func(t *testing.T) {
			vcc := &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
			vcc.Spec.Credentials, vcc.Spec.CA = "creds", c.ca
			got, err := credentials.Read(t.Context(), fake.NewClientBuilder().WithObjects(c.objects...).Build(), vcc)
			require.Equal(t, []string{c.password, c.is}, []string{got.Password, string(got.CA)})
			require.Equal(t, len(c.objects) > 0, got.Version != "", "also beside an error")
			require.Equal(t, c.password != "own", got.Elsewhere)
			require.Equal(t, c.password != "own", got.Ends.IsZero())
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, fault.NotFound, fault.ReasonOf(err))
			require.Contains(t, fault.Text(err), c.says)
		})
	}
}
