package operator_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver is a collector of traces, by OTLP over HTTP.
type receiver struct {
	mu  sync.Mutex
	got []*collector.ExportTraceServiceRequest
	raw string
}

// collect has the programs that are started after send their traces to a receiver.
func collect(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		got := &collector.ExportTraceServiceRequest{}
		if err != nil || req.URL.Path != "/v1/traces" || proto.Unmarshal(body, got) != nil {
			http.Error(w, "not OTLP", http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got, r.raw = append(r.got, got), r.raw+string(body)
	}))
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	return r
}

// has requires steps within passes, by the names of both and the reason that a step failed
// for, and none of the secrets.
func (r *receiver) has(t *testing.T, want [][3]string, secrets ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	type span struct{ name, parent, failed string }
	all := map[string]span{}
	for _, g := range r.got {
		for _, res := range g.GetResourceSpans() {
			for _, scope := range res.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					all[string(s.GetSpanId())] = span{s.GetName(), string(s.GetParentSpanId()), s.GetStatus().GetMessage()}
				}
			}
		}
	}
	var seen [][3]string
	for _, s := range all {
		seen = append(seen, [3]string{all[s.parent].name, s.name, s.failed})
	}
	for _, w := range want {
		require.Contains(t, seen, w)
	}
	for _, s := range secrets {
		require.NotContains(t, r.raw, s)
	}
}
