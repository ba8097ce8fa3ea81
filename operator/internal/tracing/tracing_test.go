package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/tracing"
)

// A receiver of OTLP over HTTP has what was begun and ended, and of errors the reason alone.
func TestSpansReachACollector(t *testing.T) {
	raw := ""
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/otlp/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			http.Error(w, "not OTLP", http.StatusBadRequest)
			return
		}
		raw += string(body) // one request after the other, and messages behind each other are one
	}))
	ctx, end := tracing.Span(t.Context(), "before")
	require.Equal(t, t.Context(), ctx, "it is off")
	end(nil)

	stop, err := tracing.Start(t.Context(), tracing.Options{Endpoint: receiver.URL + "/otlp/", Version: "v1.2.3", Namespace: "ns"})
	require.NoError(t, err)
	ctx, endPass := tracing.Span(t.Context(), "pass", "kind", "VDOConfig", "name", "site", "empty", "")
	_, endStep := tracing.Span(ctx, "apply", "object", "Secret ns/x")
	endStep(&fault.Error{Reason: fault.Unauthorized, Subject: "canary", Err: errors.New("canary of a password")})
	endPass(errors.New("canary"))
	stop()
	stop()

	receiver.Close() // and nothing is received any more
	var got collector.ExportTraceServiceRequest
	require.NoError(t, proto.Unmarshal([]byte(raw), &got))
	var spans []*tracev1.Span
	for _, r := range got.GetResourceSpans() {
		spans = append(spans, r.GetScopeSpans()[0].GetSpans()...)
	}
	require.Len(t, spans, 2)
	slices.SortFunc(spans, func(a, b *tracev1.Span) int { return strings.Compare(b.GetName(), a.GetName()) })
	pass, step := spans[0], spans[1]
	require.Equal(t, pass.GetSpanId(), step.GetParentSpanId())
	require.Equal(t, pass.GetTraceId(), step.GetTraceId())
	require.Len(t, pass.GetAttributes(), 2)
	require.Equal(t, "Unauthorized", step.GetStatus().GetMessage())
	require.Equal(t, tracev1.Status_STATUS_CODE_ERROR, step.GetStatus().GetCode())
	require.NotContains(t, raw, "canary")
	for _, has := range []string{"vdo-operator", "v1.2.3", "Secret ns/x"} {
		require.Contains(t, raw, has)
	}
}

func TestACollectorThatDoesNotAnswerHoldsNothingUp(t *testing.T) {
	never := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-never }))
	t.Cleanup(receiver.Close)
	stop, err := tracing.Start(t.Context(), tracing.Options{Endpoint: receiver.URL})
	require.NoError(t, err)
	for range 5000 { // more than may wait to be sent; who waited for a place would wait for ever
		_, end := tracing.Span(t.Context(), "pass")
		end(nil)
	}
	close(never)
	stop()
}

func TestEndpointsThatAreNone(t *testing.T) {
	for _, bad := range []string{"collector:4317", "ftp://h", "http://", "https://user:canary@h:4318", "http://h/?token=canary", "http://h:port"} {
		_, err := tracing.Start(context.Background(), tracing.Options{Endpoint: bad})
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), bad)
		require.NotContains(t, fault.Text(err), "canary")
	}
}

// While it is off a span costs next to nothing.
func TestNoSpansWithoutACollector(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, end := tracing.Span(context.Background(), "pass")
		end(nil)
	}))
}

// inItsOwn tells a test that it is run as a program of its own, and by which collector.
const inItsOwn = "VDO_TEST_COLLECTOR"

// TestTraced is the program that the tests below run.
func TestTraced(t *testing.T) {
	to := os.Getenv(inItsOwn)
	if to == "" {
		return // it is run by the tests below
	}
	log := funcr.New(func(_, args string) { fmt.Fprintln(os.Stderr, "log:", args) }, funcr.Options{})
	stop, err := tracing.Start(context.Background(), tracing.Options{Endpoint: to, Log: log})
	if err != nil {
		fmt.Fprintln(os.Stderr, "fault:", fault.ReasonOf(err), fault.Text(err))
		return
	}
	for range 2000 { // of which some have to be sent at once
		_, end := tracing.Span(t.Context(), "pass")
		end(nil)
	}
	stop()
}

// traced runs it, and returns all that it prints.
func traced(t *testing.T, to string, variables ...string) string {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTraced$")
	cmd.Env = append(append(os.Environ(), inItsOwn+"="+to), variables...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// Neither a login nor what a collector answers is printed: it may repeat the login.
func TestNothingOfTheCollectorIsPrinted(t *testing.T) {
	var refused atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		refused.Add(1)
		http.Error(w, "you said "+r.Header.Get("Api-Key"), http.StatusBadRequest)
	}))
	t.Cleanup(receiver.Close)
	out := traced(t, receiver.URL, "OTEL_EXPORTER_OTLP_HEADERS=api-key=canary")
	require.Greater(t, refused.Load(), int64(1))
	require.NotContains(t, out, "canary")
	require.Equal(t, 1, strings.Count(out, "spans are dropped"), "%s", out)
}

func TestVariablesThatCannotBeReadAreNotPrinted(t *testing.T) {
	out := traced(t, "https://127.0.0.1:1", "OTEL_EXPORTER_OTLP_HEADERS=canary",
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS=api-key=canary%zz", "OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere/canary/ca.crt")
	require.NotContains(t, out, "canary")
	require.NotContains(t, out, "fault:", "tracing begins")
	require.Contains(t, out, "spans are dropped")
}
