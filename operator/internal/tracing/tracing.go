// Package tracing sends the duration and result of reconciles and their steps to a collector, by OTLP over HTTP, if
// tracing is on.
//
// A span has a name of this program's, the kind and name of its resource, and the reason of a failure. It never has a
// message, a value or an address, since messages quote texts of others. While tracing is off, [Span] only checks that.
//
// Login and certificates of the collector come from the variables of the OpenTelemetry specification, such as
// OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_CERTIFICATE. Neither their values nor the collector's answers are
// ever printed. While the collector takes no spans, one line an hour is logged.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Options are the settings of [Start].
type Options struct {
	Endpoint  string // URL of the collector, such as https://otel.site.example:4318; required
	Version   string // of the program
	Namespace string // of the operator
	Log       logr.Logger
}

// active starts spans; nil while tracing is off.
var active atomic.Pointer[tracer]

type tracer struct{ trace.Tracer }

// flush bounds how long the program's end waits for the last spans.
const flush = 3 * time.Second

// Start switches tracing on. The returned function sends the remaining spans and switches it off. A collector that
// does not answer delays nothing: spans are dropped.
func Start(ctx context.Context, o Options) (stop func(), err error) {
	to, err := endpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	otel.SetLogger(logr.Discard()) // the library prints its variables, which hold logins
	otel.SetErrorHandler(&unsent{log: o.Log})
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to))
	if err != nil {
		return nil, bad(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(resource.NewSchemaless(
		attribute.String("service.name", "vdo-operator"), attribute.String("service.version", o.Version), attribute.String("k8s.namespace.name", o.Namespace))))
	mine := &tracer{provider.Tracer("github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator")}
	active.Store(mine)
	return func() {
		active.CompareAndSwap(mine, nil)
		ctx, cancel := context.WithTimeout(context.Background(), flush)
		defer cancel()
		_ = provider.Shutdown(ctx) // spans that cannot be sent are dropped
	}, nil
}

// endpoint returns the URL for traces, below the collector's URL.
func endpoint(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", bad(errors.New("it is no URL")) // the error would quote it
	case (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return "", bad(errors.New("it is no URL of a collector"))
	case u.User != nil:
		return "", bad(errors.New("it has a login in it"))
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + "/v1/traces"
	return u.String(), nil
}

func bad(err error) error {
	return &fault.Error{Reason: fault.InvalidInput, Op: "send traces to", Subject: "--otlp-endpoint", Err: err,
		Hint: "write http://HOST:4318 or https://HOST:4318; a login belongs into OTEL_EXPORTER_OTLP_HEADERS"}
}

// Span starts a child span of ctx's. The returned function ends it, with the reason of an error. Attributes are pairs
// of keys and values.
func Span(ctx context.Context, name string, attributes ...string) (_ context.Context, end func(error)) {
	t := active.Load()
	if t == nil {
		return ctx, func(error) {}
	}
	var all []attribute.KeyValue
	for i := 0; i+1 < len(attributes); i += 2 {
		if attributes[i+1] != "" {
			all = append(all, attribute.String(attributes[i], attributes[i+1]))
		}
	}
	ctx, span := t.Start(ctx, name, trace.WithAttributes(all...))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, reason(err))
		}
		span.End()
	}
}

func reason(err error) string {
	if r := fault.ReasonOf(err); r != "" {
		return string(r)
	}
	return fmt.Sprintf("%T", err)
}

// repeated is the time between log lines while spans cannot be sent.
const repeated = time.Hour

// unsent logs that spans cannot be sent, at most once in [repeated].
type unsent struct {
	log  logr.Logger
	mu   sync.Mutex
	last time.Time
}

// Handle logs an error without its text: the collector's answer may repeat the login.
func (u *unsent) Handle(error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := time.Now(); u.last.IsZero() || now.Sub(u.last) >= repeated {
		u.last = now
		u.log.Info("spans are dropped: the collector does not answer, or does not take them; see OTEL_EXPORTER_OTLP_…, and the collector's log")
	}
}
