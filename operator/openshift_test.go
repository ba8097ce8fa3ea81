package operator

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// Whether the cluster assigns users to pods is asked of the API server, and never guessed.
func TestOpenShiftIsKnownByItsKinds(t *testing.T) {
	for status, want := range map[int]struct{ yes, fails bool }{
		http.StatusOK: {yes: true}, http.StatusNotFound: {}, http.StatusForbidden: {fails: true}, http.StatusServiceUnavailable: {fails: true},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.URL.Path, "/apis/security.openshift.io/v1") {
				t.Errorf("asked for %s", r.URL.Path)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}`, status)
		}))
		yes, err := serves(t.Context(), &rest.Config{Host: s.URL}, "security.openshift.io/v1")
		s.Close()
		require.Equal(t, want.yes, yes, status)
		require.Equal(t, want.fails, err != nil, "%d: %v", status, err)
	}
}
