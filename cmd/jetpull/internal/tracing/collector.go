package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpclient"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/internal/watch"
)

// collector is where spans are exported to, by OTLP over HTTP in protobuf. OpenTelemetry's own client, otlptracehttp, imports gRPC, which
// would add 2 MB to the command.
type collector struct {
	url    string
	header http.Header
	gzip   bool
	http   *http.Client
}

// newCollector reads the collector from the environment. Its errors show no value that can have a secret.
func newCollector(getenv environment) (c *collector, err error) {
	c = &collector{}
	variable, endpoint := getenv.lookup("ENDPOINT", "http://localhost:4318")
	if variable == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		endpoint = strings.TrimSuffix(endpoint, "/") + "/v1/traces"
	}
	if err := cli.CheckURL(variable, endpoint); err != nil {
		return nil, err
	}
	c.url = endpoint
	if c.header, err = header(getenv.lookup("HEADERS", "")); err != nil {
		return nil, err
	}
	variable, compression := getenv.lookup("COMPRESSION", "none")
	if c.gzip = compression == "gzip"; !c.gzip && compression != "none" {
		return nil, fmt.Errorf("%s=%q is neither gzip nor none", variable, compression)
	}
	variable, text := getenv.lookup("TIMEOUT", "10000")
	timeout, err := strconv.Atoi(text)
	if err != nil || timeout <= 0 {
		return nil, fmt.Errorf("%s=%q is not a number of milliseconds", variable, text)
	}
	certificates, err := getenv.certificates()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSClientConfig: certificates}
	c.http = httpclient.New(&http.Client{Transport: transport, Timeout: time.Duration(timeout) * time.Millisecond})
	return c, nil
}

// header is the header of each request, with the pairs of a variable.
func header(variable, pairs string) (http.Header, error) {
	h := http.Header{"Content-Type": {"application/x-protobuf"}}
	for pair := range strings.SplitSeq(pairs, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name, nameErr := url.PathUnescape(strings.TrimSpace(name))
		value, valueErr := url.PathUnescape(strings.TrimSpace(value))
		if !ok || nameErr != nil || valueErr != nil || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("%s is not name=value with commas between, where a percent sign begins an encoded byte", variable)
		}
		h.Set(name, value)
	}
	return h, nil
}

// certificates are those of the collector's authorities and of the client.
func (getenv environment) certificates() (_ *tls.Config, err error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if variable, file := getenv.lookup("CERTIFICATE", ""); file != "" {
		if cfg.RootCAs, err = webhook.Authorities(file); err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
	}
	if variable, file := getenv.lookup("CLIENT_CERTIFICATE", ""); file != "" {
		_, key := getenv.lookup("CLIENT_KEY", "")
		pair, err := tls.LoadX509KeyPair(file, key)
		if err != nil {
			return nil, fmt.Errorf("%s and …_CLIENT_KEY: %w", variable, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
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
		if watch.Sleep(ctx, max(pause, after)) != nil {
			return err
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
