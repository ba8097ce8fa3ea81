package render

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	if namespace != "" {
		o.SetNamespace(namespace)
	}
	return o
}

func configMap(namespace, name string, data map[string][]byte) *unstructured.Unstructured {
	o := object("v1", "ConfigMap", namespace, name)
	text := map[string]any{}
	for k, v := range data {
		text[k] = string(v)
	}
	o.Object["data"] = text
	return o
}

func secret(namespace, name, kind string, data map[string][]byte) *unstructured.Unstructured {
	o := object("v1", "Secret", namespace, name)
	o.Object["type"] = kind
	encoded := map[string]any{}
	for k, v := range data {
		encoded[k] = base64.StdEncoding.EncodeToString(v)
	}
	o.Object["data"] = encoded
	return o
}

// configHash returns an HMAC of all keys and values, each preceded by its length.
func configHash(key []byte, sets ...map[string][]byte) string {
	mac := hmac.New(sha256.New, key)
	write := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		mac.Write(n[:])
		mac.Write(b)
	}
	for i, set := range sets {
		write([]byte{byte(i)})
		for _, k := range slices.Sorted(maps.Keys(set)) {
			write([]byte(k))
			write(set[k])
		}
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// String returns the object's name; its content may be secret.
func (o Object) String() string { return RefOf(o.Unstructured).String() }

// GoString returns the object's name; its content may be secret.
func (o Object) GoString() string { return o.String() }
