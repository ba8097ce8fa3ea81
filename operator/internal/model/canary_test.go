package model

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nothingButSecretsHasASecret looks for the value of every secret in all that the operator
// writes beside Secrets: inventories and other records, copies of bundles, which are
// compressed, and what is installed.
func (w *world) nothingButSecretsHasASecret() {
	lists := []client.ObjectList{
		&corev1.ConfigMapList{}, &corev1.ServiceAccountList{}, &corev1.ServiceList{}, &appsv1.DeploymentList{}, &appsv1.DaemonSetList{},
		&rbacv1.RoleList{}, &rbacv1.ClusterRoleList{}, &storagev1.CSIDriverList{},
	}
	for _, list := range lists {
		w.must(w.List(w.ctx, list))
		w.must(meta.EachListItem(list, func(o runtime.Object) error {
			if where := told(o); where != "" {
				named, _ := meta.Accessor(o) //nolint:errcheck // a list's items are objects
				w.fail("no secret is told", "%T %s/%s has one: %s", o, named.GetNamespace(), named.GetName(), where)
			}
			return nil
		}))
	}
}

// told says where an object has a secret, "" where it has none.
func told(o runtime.Object) string {
	data, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	if where := has(data); where != "" {
		return where
	}
	c, ok := o.(*corev1.ConfigMap)
	if !ok {
		return ""
	}
	for key, value := range c.BinaryData {
		if where := has(value); where != "" {
			return key + ": " + where
		}
		z, err := gzip.NewReader(bytes.NewReader(value))
		if err != nil {
			continue // a later part, or not compressed
		}
		text, _ := io.ReadAll(io.LimitReader(z, 64<<20)) //nolint:errcheck // the first part of several is cut off
		if where := has(text); where != "" {
			return key + ", unpacked: " + where
		}
	}
	return ""
}

// has finds a secret as it is, and in any base64.
func has(text []byte) string {
	for _, form := range canaries {
		if i := bytes.Index(text, []byte(form)); i >= 0 {
			return fmt.Sprintf("…%s", text[max(0, i-100):i+len(form)])
		}
	}
	return ""
}

// canaries are the canary, and what of its base64 is the same whatever is around it.
var canaries = func() []string {
	all := []string{canary}
	for before := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + canary))
		text = strings.TrimRight(text, "=")
		all = append(all, text[(before*4+2)/3:len(text)-1])
	}
	return all
}()

// That the search finds: as it is, in base64, and in what is compressed.
func TestASecretIsFoundWhereverItIs(t *testing.T) {
	named := metav1.ObjectMeta{Name: "x"}
	require.Empty(t, told(&corev1.ConfigMap{ObjectMeta: named, Data: map[string]string{"a": "none"}, BinaryData: map[string][]byte{"b": {1, 2}}}))
	for before := range 4 {
		secret := strings.Repeat("p", before) + canary + "-1"
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err := z.Write([]byte("header\n" + base64.StdEncoding.EncodeToString([]byte(secret))))
		require.NoError(t, err)
		require.NoError(t, z.Close())
		for name, o := range map[string]runtime.Object{
			"plain":      &corev1.ConfigMap{Data: map[string]string{"a": secret}},
			"base64":     &corev1.ConfigMap{Data: map[string]string{"a": base64.StdEncoding.EncodeToString([]byte("user:" + secret))}},
			"binary":     &corev1.ConfigMap{BinaryData: map[string][]byte{"a": []byte(secret)}},
			"compressed": &corev1.ConfigMap{BinaryData: map[string][]byte{"a": packed.Bytes()}},
			"annotation": &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"hash": secret}}},
		} {
			require.NotEmpty(t, told(o), "%s after %d", name, before)
		}
	}
}
