package tracing_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/tracing"
)

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
	t.Helper()
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
	require.Contains(t, out, "it answers 400")
}

func TestVariablesThatCannotBeReadAreRefusedUnprinted(t *testing.T) {
	for variable, says := range map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS=canary":                     "parse headers",
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS=api-key=canary%zz":   "escape header value",
		"OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere/canary/ca.crt": "read tls ca cert file",
	} {
		out := traced(t, "https://collector.site:4318", variable)
		require.Contains(t, out, "fault: InvalidInput", variable)
		require.Contains(t, out, says, variable)
		require.NotContains(t, out, "canary", variable)
	}
}
