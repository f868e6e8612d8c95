// Package tracing exports the spans of a process as configured by the OTEL environment variables.
package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpclient"
	"github.com/jetpull/jetpull/internal/webhook"
)

// Help is what the help of a command says of it.
const Help = `Traces are exported by OTLP over HTTP if OpenTelemetry's environment variables ask
for it: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER, OTEL_TRACES_SAMPLER,
OTEL_SERVICE_NAME and so on.`

// traceFlush bounds the export of the last spans at the end.
const traceFlush = 5 * time.Second

// Start exports the spans of this process as the environment wants it,
// and nothing where it wants nothing. The returned function exports the rest.
func Start(ctx context.Context, service string, log *slog.Logger) (stop func(context.Context), err error) {
	wanted, err := traceExporter(os.Getenv)
	if err != nil || !wanted {
		return func(context.Context) {}, err
	}
	c, err := newCollector(os.Getenv)
	if err != nil {
		return nil, cli.Usage(err)
	}
	exporter, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("export of traces: %w", err)
	}
	// The environment comes last, so that it overrides the name.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(semconv.ServiceName(service)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("export of traces: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "error", err) }))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	otel.SetTracerProvider(provider)
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, traceFlush)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last spans were not exported", "error", err)
		}
	}, nil
}

// traceExporter reads whether spans are to be exported. An exporter that this program
// does not have is refused, because missing spans would be noticed too late.
func traceExporter(getenv environment) (wanted bool, err error) {
	_, endpoint := getenv.lookup("ENDPOINT")
	exporter := getenv("OTEL_TRACES_EXPORTER")
	switch {
	case getenv("OTEL_SDK_DISABLED") == "true", exporter == "none", exporter == "" && endpoint == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, cli.Usage(fmt.Errorf("OTEL_TRACES_EXPORTER=%q: traces are exported by otlp only, or none", exporter))
	}
	if name, protocol := getenv.lookup("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return false, cli.Usage(fmt.Errorf("%s=%q: only http/protobuf is supported; collectors take it on port 4318 by default", name, protocol))
	}
	return true, nil
}

// collector is where spans are exported to, by OTLP over HTTP in protobuf. OpenTelemetry's own client, otlptracehttp, imports gRPC, which
// would add 2 MB to the command.
type collector struct {
	url    string
	header http.Header
	gzip   bool
	http   *http.Client
}

// environment reads OpenTelemetry's variables of the exporter. A variable for traces goes before the one for all signals.
type environment func(name string) string

func (getenv environment) lookup(name string) (variable, value string) {
	for _, variable = range []string{"OTEL_EXPORTER_OTLP_TRACES_" + name, "OTEL_EXPORTER_OTLP_" + name} {
		if value = strings.TrimSpace(getenv(variable)); value != "" {
			break
		}
	}
	return variable, value
}

// newCollector reads the collector from the environment. Its errors show no value that can have a secret.
func newCollector(getenv environment) (*collector, error) {
	c := &collector{header: http.Header{"Content-Type": {"application/x-protobuf"}}}
	variable, endpoint := getenv.lookup("ENDPOINT")
	switch {
	case endpoint == "":
		endpoint = "http://localhost:4318/v1/traces"
	case variable == "OTEL_EXPORTER_OTLP_ENDPOINT":
		endpoint = strings.TrimSuffix(endpoint, "/") + "/v1/traces"
	}
	if err := cli.CheckURL(variable, endpoint); err != nil {
		return nil, err
	}
	c.url = endpoint
	variable, headers := getenv.lookup("HEADERS")
	for pair := range strings.SplitSeq(headers, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name, nameErr := url.PathUnescape(strings.TrimSpace(name))
		value, valueErr := url.PathUnescape(strings.TrimSpace(value))
		if !ok || nameErr != nil || valueErr != nil || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("%s is not name=value with commas between, where a percent sign begins an encoded byte", variable)
		}
		c.header.Set(name, value)
	}
	variable, compression := getenv.lookup("COMPRESSION")
	if c.gzip = compression == "gzip"; !c.gzip && compression != "" && compression != "none" {
		return nil, fmt.Errorf("%s=%q is neither gzip nor none", variable, compression)
	}
	timeout := 10_000
	if variable, text := getenv.lookup("TIMEOUT"); text != "" {
		var err error
		if timeout, err = strconv.Atoi(text); err != nil || timeout <= 0 {
			return nil, fmt.Errorf("%s=%q is not a number of milliseconds", variable, text)
		}
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if variable, file := getenv.lookup("CERTIFICATE"); file != "" {
		var err error
		if transport.TLSClientConfig.RootCAs, err = cli.Authorities(file); err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
	}
	if variable, file := getenv.lookup("CLIENT_CERTIFICATE"); file != "" {
		_, key := getenv.lookup("CLIENT_KEY")
		pair, err := tls.LoadX509KeyPair(file, key)
		if err != nil {
			return nil, fmt.Errorf("%s and …_CLIENT_KEY: %w", variable, err)
		}
		transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	c.http = httpclient.New(&http.Client{Transport: transport, Timeout: time.Duration(timeout) * time.Millisecond})
	return c, nil
}

// Start implements [otlptrace.Client].
func (c *collector) Start(context.Context) error { return nil }

// Stop implements [otlptrace.Client].
func (c *collector) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// The time between two attempts at an export. Its context bounds all of them.
const (
	firstPause = time.Second
	lastPause  = 16 * time.Second
)

// UploadTraces implements [otlptrace.Client].
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// These bytes are those of an ExportTraceServiceRequest, whose Go package imports gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	if c.gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := w.Write(body)
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
		body = packed.Bytes()
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		after, err := c.post(ctx, body)
		if err == nil || after < 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(max(pause, after)):
		}
	}
}

// post makes one attempt. After an error, the collector may take the spans at least so much later; never if that is below 0.
func (c *collector) post(ctx context.Context, body []byte) (after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return -1, mask.Error(err, c.url)
	}
	r.Header = c.header.Clone()
	if c.gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return -1, mask.Error(err, c.url)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode/100 == 2 {
		return -1, errors.Join(err, refused(text))
	}
	err = fmt.Errorf("the collector answered with status %s: %.200q", resp.Status, text)
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		after, _ = webhook.RetryAfter(resp.Header, time.Now())
		return after, err
	}
	return -1, err
}

// refused is an error if an answer says that the collector did not take some spans. The Go package of an ExportTraceServiceResponse imports gRPC.
// Messages with the same fields read it: its field 1, and in there the number of spans in field 1 and the reason in field 2.
func refused(answer []byte) error {
	var partial wrapperspb.BytesValue
	var spans wrapperspb.Int64Value
	var reason tracepb.Status
	err := errors.Join(proto.Unmarshal(answer, &partial), proto.Unmarshal(partial.GetValue(), &spans), proto.Unmarshal(partial.GetValue(), &reason))
	if err != nil || spans.GetValue() == 0 && reason.GetMessage() == "" {
		return nil //nolint:nilerr // an answer that is not protobuf says nothing
	}
	return fmt.Errorf("the collector refused %d spans: %q", spans.GetValue(), reason.GetMessage())
}

var _ otlptrace.Client = (*collector)(nil)
