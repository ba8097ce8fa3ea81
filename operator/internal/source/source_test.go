package source_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

func site(away error) client.Client {
	about := metav1.ObjectMeta{Namespace: "ns", Name: "it", UID: "u"}
	return fake.NewClientBuilder().WithObjects(
		&corev1.Secret{ObjectMeta: about, Data: map[string][]byte{"password": []byte("canary"), "blank": []byte(" \n")}},
		&corev1.ConfigMap{ObjectMeta: about, Data: map[string]string{"ca.crt": "text"}, BinaryData: map[string][]byte{"binary": {0xff}}},
	).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if away != nil {
				return away
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
}

func TestAKeyIsReadWithTheVersionOfItsObject(t *testing.T) {
	c := site(nil)
	for _, w := range []struct {
		ref  v1alpha1.KeyReference
		want string
	}{
		{v1alpha1.KeyReference{Secret: "it", Key: "password"}, "canary"},
		{v1alpha1.KeyReference{ConfigMap: "it"}, "text"},
		{v1alpha1.KeyReference{ConfigMap: "it", Key: "binary"}, "\xff"},
	} {
		v := must.Have(source.Key(t.Context(), c, source.Desired{Namespace: "ns", Ref: w.ref, Default: "ca.crt"}))(t)
		require.Equal(t, w.want, string(v.Bytes))
		require.Equal(t, "u/999", v.Version)
		all := must.Have(source.Read(t.Context(), c, "ns", w.ref))(t)
		require.Equal(t, v.Version, all.Version, "one state has one name, however it is read")
	}
}

func TestWhyAKeyCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		ref     v1alpha1.KeyReference
		away    error
		reason  fault.Reason
		text    string
		version string
	}{
		"no Secret":    {v1alpha1.KeyReference{Secret: "none"}, nil, fault.NotFound, "read Secret ns/none: it is not there (create it)", ""},
		"no ConfigMap": {v1alpha1.KeyReference{ConfigMap: "none"}, nil, fault.NotFound, "read ConfigMap ns/none: it is not there (create it)", ""},
		"no key":       {v1alpha1.KeyReference{Secret: "it", Key: "user"}, nil, fault.NotFound, "read Secret ns/it: it has no key user (create it)", "u/999"},
		"blank":        {v1alpha1.KeyReference{Secret: "it", Key: "blank"}, nil, fault.InvalidInput, "read Secret ns/it: its key blank is empty (create it)", "u/999"},
		"away":         {v1alpha1.KeyReference{Secret: "it", Key: "password"}, errors.New("timeout"), fault.Unreachable, "read Secret ns/it: timeout", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := source.Key(t.Context(), site(c.away), source.Desired{Namespace: "ns", Ref: c.ref, Default: "ca.crt", Hint: "create it"})
			require.Equal(t, c.reason, fault.ReasonOf(err))
			require.Equal(t, c.text, fault.Text(err))
			require.Empty(t, v.Bytes)
			require.Equal(t, c.version, v.Version, "of what is there, whatever is in it")
		})
	}
}

func TestContentsDoNotPrint(t *testing.T) {
	ref := v1alpha1.KeyReference{Secret: "it", Key: "password"}
	v := must.Have(source.Key(t.Context(), site(nil), source.Desired{Namespace: "ns", Ref: ref}))(t)
	all := must.Have(source.Read(t.Context(), site(nil), "ns", ref))(t)
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(format, v)+fmt.Sprintf(format, all), "canary", format)
	}
}
