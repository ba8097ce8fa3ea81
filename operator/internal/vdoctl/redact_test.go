package vdoctl

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"html"
	"io"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// remains are the parts of a secret that are in a text, by its words of four letters and more.
func remains(text, secret string) (out []string) {
	for _, word := range strings.FieldsFunc(secret, func(r rune) bool { return strings.ContainsRune(" '\n&<>\"", r) }) {
		if len(word) >= minSecret && strings.Contains(text, word) {
			out = append(out, word)
		}
	}
	return out
}

func TestSecretsAreHiddenInAllForms(t *testing.T) {
	for _, secret := range []string{
		"it's: s3cret", "Canary\"7&<ü 1\\x", "p4ss<and&w0rd5", "p@ss'W0rd <x4y5z>", `quoted"P4ss&x`, "alpha4 bravo4 charlie4 delta4 echo4 foxtrot4 golf4 hotel4 india4 juliet4 kilo4 lima4 mike4",
		"line-one-s3cret\nline-two-s3cret", "key=w0rd\nline-two-s3cret\nline-three-s3cret", strings.Repeat("s3cretLine\n", maxWhole/8),
	} {
		r := newRedactor()
		r.add([]byte(secret))
		quoted := must.Have(json.Marshal(secret))(t)
		again := must.Have(json.Marshal(string(quoted)))(t)
		for _, text := range []string{
			secret, "--password=" + secret, "login failed: user u password " + secret + " refused by the vCenter after some time of waiting for it", "'" + secret + "'", "a: 'x " + secret + "'",
		} {
			tree := must.Have(r.object(map[string]any{"a": map[string]any{"args": []string{text}}}))(t)
			data := must.Have(yaml.Marshal(tree))(t)
			require.Empty(t, remains(string(r.clean(data)), secret), "%s", data)
		}
		for _, text := range []string{
			"'" + strings.ReplaceAll(secret, "'", "''") + "'", strings.NewReplacer("&", "&amp;", "<", "&lt;").Replace(secret), html.EscapeString(secret), string(quoted), string(again),
			"2026-01-01T00:00:00Z " + strings.ReplaceAll(secret, "\n", "\n2026-01-01T00:00:00Z "), "    " + strings.ReplaceAll(secret, "\n", "\n    "),
		} {
			require.Empty(t, remains(r.cleanText(text), secret), text)
		}
		if len(secret) > maxWhole {
			continue
		}
		for _, text := range []string{strconv.Quote(secret), url.QueryEscape(secret), url.PathEscape(secret)} {
			require.Equal(t, hidden, strings.Trim(r.cleanText(text), `"`))
		}
		for _, before := range []string{"", "u", "u:"} {
			for _, coding := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				require.Contains(t, r.cleanText(coding.EncodeToString([]byte(before+secret+":more"))), hidden)
			}
		}
	}
	r := newRedactor()
	r.add([]byte("[Global]\nuser = \"u4user\"\npassword = \"hunter2hunter2\"\nsecret-name = \"vsphere-creds\"\ndatacenters = \"/site/prod\"\n"))
	kept := "[Global] datacenters = \"/site/prod\" vsphere-creds u4user"
	require.Equal(t, kept, r.cleanText(kept), "what has to be read stays")
	for _, conf := range []string{
		"global:\n  password: hunter22\n", "user =\r\npassword = \"hunter22\"\r\nhost = x\r\n",
		"- user:\n\n  password: hunter22\n", "global:\n  user: u\n  password:\n    hunter22\n  insecure: true\n",
	} {
		r := newRedactor()
		r.add([]byte(conf))
		require.Equal(t, "login with "+hidden, r.cleanText("login with hunter22"), "a key without a value hides no other: %q", conf)
	}
}

// What is in no Secret: it has to be seen by where it stands.
func TestObjectsHaveNoLooseSecrets(t *testing.T) {
	const loose = "hunter2hunter2"
	texts := []string{
		"[Global]\nuser = \"a@b\"\npassword = \"" + loose + "\"\n", "password: " + loose, "password: my " + loose + " too", "vcenter:\n  password: |\n    " + loose + "\n    x " + loose + "\n", "secret:\n  password: " + loose,
		"password:\n  " + loose + "\n", `{"user":"u","bmcPassword":"` + loose + `","port":443}`, `{"a":"{\"token\":\"` + loose + `\"}"}`, "{user: u, password: " + loose + "}", "auths: {x: {auth: " + loose + "}}",
		"run --token=" + loose + " --v=4", "run --password " + loose, "run --password '" + loose + " " + loose + "'", "https://user:" + loose + "@proxy.site:3128", "Authorization: Bearer " + loose, "curl -H 'Bearer " + loose + "'",
		"x=1;password=" + loose, "- client-secret: '" + loose + "'", "PASSWORD=" + loose + "\r\nb=1\r\n",
	}
	for i, text := range texts {
		for at, object := range map[string]map[string]any{
			"data":       {"data": map[string]any{"vsphere.conf": text}},
			"env":        {"spec": map[string]any{"containers": []any{map[string]any{"env": []any{map[string]any{"name": "ARGS", "value": text}}}}}},
			"args":       {"spec": map[string]any{"template": map[string]any{"containers": []any{map[string]any{"args": []any{"--v=4", text}}}}}},
			"command":    {"spec": map[string]any{"initContainers": []any{map[string]any{"command": []any{"sh", "-c", text}}}}},
			"annotation": {"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"note": text}}}}},
		} {
			r := newRedactor()
			object["metadata"] = map[string]any{"name": "x"}
			r.withoutSecrets(&unstructured.Unstructured{Object: object})
			tree := must.Have(r.object(object))(t)
			data := must.Have(yaml.Marshal(tree))(t)
			require.NotContains(t, string(data), loose, "%s: %s", at, text)
			if i < 2 {
				require.Equal(t, "login with [hidden]", r.cleanText("login with "+loose), "%s: %s", at, text)
			}
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "x", "annotations": map[string]any{
			"kapp.k14s.io/original": `{"data":{"x":"` + loose + `"}}`, "objectset.rio.cattle.io/applied": "H4sI" + loose, "notes": strings.Repeat("x", 257) + loose, "bmc-password": loose, "deployment.kubernetes.io/revision": "3",
		}},
		"binaryData": map[string]any{"x": loose},
		"data":       map[string]any{"note": "it is " + loose, "bmc-token": loose},
		"spec": map[string]any{"args": []any{"--password", loose, "--v", "4", "--token-ttl=300"},
			"httpHeaders": []any{map[string]any{"name": "Authorization", "value": loose}}},
	}}
	r := newRedactor()
	r.withoutSecrets(u)
	data := must.Have(yaml.Marshal(u.Object))(t)
	require.NotContains(t, string(data), loose)
	for _, kept := range []string{`revision: "3"`, "- --v\n"} {
		require.Contains(t, string(data), kept)
	}
	require.Equal(t, "login with [hidden]", r.cleanText("login with "+loose), "the logs are written later")
	require.Equal(t, "300 true", r.cleanText("300 true"))
}

func TestLogsAreCutAtTheEndOfALine(t *testing.T) {
	for data, want := range map[string]string{"one\ntwo\n": "one\ntwo\n", "one\ntwo\nthree": "one\ntwo\n", "one of 10 bytes": ""} {
		require.Equal(t, want, string(wholeLines([]byte(data), 10)))
	}
}

// Every kubeadm cluster has such Secrets in kube-system.
func TestSupportBundleKeepsCommonWords(t *testing.T) {
	var out bytes.Buffer
	x := &collection{app: &app{now: time.Now}, hide: newRedactor(), tar: tar.NewWriter(&out)}
	x.secret(&corev1.Secret{ObjectMeta: metaOf("kube-system", "bootstrap-token-abcdef"), Data: map[string][]byte{
		"usage-bootstrap-signing": []byte("true"), "token-secret": []byte("0123456789abcdef"),
		"namespace": []byte("default"), "directory": []byte("kube-system")}})
	const name = "resources/kube-system/Pod/vsphere-0123456789abcdef.yaml"
	x.putYAML(name, corev1.Pod{ObjectMeta: metaOf("default", "x"), Spec: corev1.PodSpec{HostNetwork: true}})
	r := tar.NewReader(&out)
	h := must.Have(r.Next())(t)
	require.Equal(t, "vdo-support/resources/kube-system/Pod/vsphere-[hidden].yaml", h.Name)
	data := must.Have(io.ReadAll(r))(t)
	require.Contains(t, string(data), "namespace: default")
	require.Contains(t, string(data), "hostNetwork: true")
}
