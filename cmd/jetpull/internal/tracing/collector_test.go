package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const secretToken = "s3cr3t-t0ken"

// in is an environment.
func in(variables map[string]string) environment {
	return func(name string) string { return variables[name] }
}

// No value of a header gets out, however the variable is misspelt, and the error names the variable.
func TestErrorsOfTheEnvironmentShowNoSecret(t *testing.T) {
	for name, value := range map[string]string{
		"colon for equals sign": "Authorization: Bearer " + secretToken,
		"colon, base64 padding": "Authorization: Basic " + secretToken + "==",
		"second entry":          "x-team=a,x-key " + secretToken,
		"bad escape":            "x-key=%zz" + secretToken,
		"comma in the value":    "x-key=a," + secretToken,
		"no name":               "=" + secretToken,
		"space in the name":     "x key " + secretToken + "=a",
		"line end in the value": "x-key=" + secretToken + "%0A",
	} {
		for _, variable := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
			_, err := newCollector(in(map[string]string{variable: value}))
			require.ErrorContains(t, err, variable+" is not name=value", name)
			require.NotContains(t, err.Error(), secretToken, name)
		}
	}
	for variable, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":                  "http://user:" + secretToken + "@127.0.0.1:port",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT":           "127.0.0.1:4318",
		"OTEL_EXPORTER_OTLP_TIMEOUT":                   "10s",
		"OTEL_EXPORTER_OTLP_COMPRESSION":               "zstd",
		"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE":        "none",
		"OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE": "none",
	} {
		_, err := newCollector(in(map[string]string{variable: value}))
		require.ErrorContains(t, err, variable)
		require.NotContains(t, err.Error(), secretToken)
	}
}

func TestEnvironment(t *testing.T) {
	c, err := newCollector(in(nil))
	require.NoError(t, err)
	require.Equal(t, "http://localhost:4318/v1/traces", c.url)
	require.Equal(t, 10*time.Second, c.http.Timeout)
	c, err = newCollector(in(map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318/", "OTEL_EXPORTER_OTLP_HEADERS": " x-key = a , " +
			"authorization=Basic%20" + secretToken + "==,x-empty=, ",
		"OTEL_EXPORTER_OTLP_TIMEOUT": "1500", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "none",
	}))
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:4318/v1/traces", c.url)
	require.Equal(t, "a", c.header.Get("X-Key"))
	require.Equal(t, "Basic "+secretToken+"==", c.header.Get("Authorization"))
	require.Equal(t, []string{""}, c.header["X-Empty"])
	require.Equal(t, 1500*time.Millisecond, c.http.Timeout)
	require.False(t, c.gzip, "the variable for traces goes first")
	c, err = newCollector(in(map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://traces.test/in",
	}))
	require.NoError(t, err)
	require.Equal(t, "https://traces.test/in", c.url, "it is used as it is")
}

// export exports one span to a collector.
func export(ctx context.Context, t *testing.T, c *collector) error {
	t.Helper()
	exporter, err := otlptrace.New(ctx, c)
	require.NoError(t, err)
	var spans []trace.ReadOnlySpan
	provider := trace.NewTracerProvider(trace.WithSyncer(keep{&spans}))
	_, span := provider.Tracer("test").Start(ctx, "one")
	span.End()
	return exporter.ExportSpans(ctx, spans)
}

// keep is an exporter that keeps the spans.
type keep struct{ spans *[]trace.ReadOnlySpan }

func (k keep) ExportSpans(_ context.Context, spans []trace.ReadOnlySpan) error {
	*k.spans = append(*k.spans, spans...)
	return nil
}
func (keep) Shutdown(context.Context) error { return nil }

// Spans are exported over TLS to a collector with a certificate of its own authority, compressed.
func TestExportOverTLS(t *testing.T) {
	var names []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		data, _ := io.ReadAll(body)
		var spans tracepb.TracesData
		if err := proto.Unmarshal(data, &spans); err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, s := range spans.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans() {
			names = append(names, s.GetName())
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the first client does not trust it
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	variables := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
	c, err := newCollector(in(variables))
	require.NoError(t, err)
	require.ErrorContains(t, export(t.Context(), t, c), "certificate")
	variables["OTEL_EXPORTER_OTLP_CERTIFICATE"] = ca
	c, err = newCollector(in(variables))
	require.NoError(t, err)
	require.NoError(t, export(t.Context(), t, c))
	require.Equal(t, []string{"one"}, names)
}

// roundTrip is a collector without a network.
type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// A collector that is busy gets the spans again after the time that it asks for, until the export's context ends. One that refuses them does not.
func TestExportIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := newCollector(in(nil))
		require.NoError(t, err)
		begin, attempts := time.Now(), []time.Duration{}
		status, header := http.StatusServiceUnavailable, http.Header{}
		c.http.Transport = roundTrip(func(*http.Request) *http.Response {
			attempts = append(attempts, time.Since(begin))
			now := status
			if len(attempts) == 3 {
				now = http.StatusOK
			}
			return &http.Response{StatusCode: now, Status: strconv.Itoa(now), Header: header, Body: http.NoBody}
		})
		require.NoError(t, export(t.Context(), t, c))
		require.Equal(t, []time.Duration{0, time.Second, 3 * time.Second}, attempts)

		begin, attempts = time.Now(), nil
		header.Set("Retry-After", "30")
		require.NoError(t, export(t.Context(), t, c))
		require.Equal(t, []time.Duration{0, 30 * time.Second, time.Minute}, attempts)

		begin, attempts = time.Now(), nil
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.ErrorContains(t, export(ctx, t, c), "503")
		require.Len(t, attempts, 1)

		begin, attempts, status = time.Now(), nil, http.StatusBadRequest
		require.ErrorContains(t, export(t.Context(), t, c), "400")
		require.Len(t, attempts, 1)
	})
}

// An answer that takes some of the spans is an error with the number and the reason of the others.
func TestRefusedSpansAreAnError(t *testing.T) {
	partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
	partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType), "too many")
	answer := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
	c, err := newCollector(in(nil))
	require.NoError(t, err)
	c.http.Transport = roundTrip(func(*http.Request) *http.Response {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(answer))}
	})
	require.EqualError(t, export(t.Context(), t, c), `traces export: the collector refused 7 spans: "too many"`)
}

func FuzzRefused(f *testing.F) {
	f.Add([]byte("\x0a\x04\x08\x07\x12\x00"))
	f.Fuzz(func(_ *testing.T, answer []byte) { _ = refused(answer) })
}
