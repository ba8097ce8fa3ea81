package cluster_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
)

// limit is how long answers may take here.
const limit = time.Second

// behind returns a client behind a proxy that answers, and hangs until the client goes.
func behind(t *testing.T, answer func(w http.ResponseWriter, req *http.Request, hang func())) client.WithWatch {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(io.Discard, req.Body) // a server sees the end of a connection after that
		answer(w, req, func() { <-req.Context().Done() })
	}))
	t.Cleanup(proxy.Close)
	cfg := &rest.Config{Host: proxy.URL}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return cluster.Answered(next, limit) })
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: clientgoscheme.Scheme, Mapper: kinds})
	require.NoError(t, err)
	return c
}

// A proxy before the API server that takes requests and does not pass them on, or cuts the
// answer short without an end, holds nobody for ever. What it does to a watch, and what is
// only slow, is let be.
func TestNoRequestWaitsForEver(t *testing.T) {
	c := behind(t, func(w http.ResponseWriter, req *http.Request, hang func()) {
		switch {
		case req.URL.Query().Get("watch") == "true":
			w.(http.Flusher).Flush() //nolint:forcetypeassert // of package http
			time.Sleep(2 * limit)    // longer than any other may take
			_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"late"}}}`+"\n")
		case req.URL.Path == "/api/v1/namespaces/ns/configmaps/half":
			_, _ = io.WriteString(w, `{"kind":"ConfigMap",`)
			w.(http.Flusher).Flush() //nolint:forcetypeassert // of package http
			hang()
		case req.URL.Path == "/api/v1/namespaces/ns/configmaps/there":
			_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"there"}}`)
		default:
			hang()
		}
	})
	get := func(name string) error {
		return c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, &corev1.ConfigMap{})
	}

	require.NoError(t, get("there"))
	for _, name := range []string{"never", "half"} {
		require.ErrorContains(t, get(name), "the API server took the request and did not answer it in time", name)
	}
	require.ErrorContains(t, c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "new"}}), "did not answer it in time")
	w, err := c.Watch(t.Context(), &corev1.ConfigMapList{})
	require.NoError(t, err)
	defer w.Stop()
	event := <-w.ResultChan()
	require.IsType(t, &corev1.ConfigMap{}, event.Object)
}

// A watch that nobody answers, or that lasts longer than it was asked for, ends: what is kept
// by it would stay as it is.
func TestNoWatchWaitsForEver(t *testing.T) {
	c := behind(t, func(w http.ResponseWriter, req *http.Request, hang func()) {
		if req.URL.Query().Get("timeoutSeconds") != "" {
			w.(http.Flusher).Flush() //nolint:forcetypeassert // of package http
		}
		hang()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	_, err := c.Watch(ctx, &corev1.ConfigMapList{})
	require.ErrorContains(t, err, "did not answer it in time")

	w, err := c.Watch(ctx, &corev1.ConfigMapList{}, &client.ListOptions{Raw: &metav1.ListOptions{TimeoutSeconds: ptr.To(int64(1))}})
	require.NoError(t, err)
	defer w.Stop()
	for range w.ResultChan() {
	}
	require.NoError(t, ctx.Err(), "it goes on")
}
