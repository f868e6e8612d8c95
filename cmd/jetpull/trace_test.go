package main

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
)

// collected is a receiver of traces as collectors are.
type collected struct {
	t        *testing.T
	mu       sync.Mutex
	services map[string]bool
	spans    map[string]*tracepb.Span // by name
}

func (c *collected) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request tracepb.TracesData // the same bytes as an ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("X-Key") != "k" {
		c.t.Errorf("export to %s with key %q: %v", r.URL.Path, r.Header.Get("X-Key"), err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, attribute := range resource.GetResource().GetAttributes() {
			if attribute.GetKey() == "service.name" {
				c.services[attribute.GetValue().GetStringValue()] = true
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans[span.GetName()] = span
			}
		}
	}
}

// The command exports its spans where the environment says, and one trace leads
// from a producer over the broadcast and the callback to the consumer.
func TestBrokerCommandExportsTraces(t *testing.T) {
	c := &collected{t: t, services: map[string]bool{}, spans: map[string]*tracepb.Span{}}
	receiver := httptest.NewServer(c)
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=k")
	called := make(chan string, 1)
	consumer := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { called <- r.Header.Get("Traceparent") }))
	defer consumer.Close()

	base, stop := listen(t, brokercmd.New(new(bool)))
	form := map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	for path, fields := range map[string]url.Values{"/producer/pr": {"token": {"pt"}}, "/channel/ch": {"token": {"ct"}}} {
		code, body := brokerRequest(t, http.MethodPut, base+path, form, fields.Encode())
		require.Equal(t, http.StatusOK, code, body)
	}
	code, body := brokerRequest(t, http.MethodPut, base+"/channel/ch/consumer/k", form, url.Values{"callbackUrl": {consumer.URL}}.Encode())
	require.Equal(t, http.StatusOK, code, body)
	code, body = brokerRequest(t, http.MethodPost, base+"/channel/ch/broadcast", map[string]string{
		"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt",
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}, "x")
	require.Equal(t, http.StatusCreated, code, body)
	var parent string
	select {
	case parent = <-called:
	case <-time.After(20 * time.Second):
		t.Fatal("no callback")
	}
	require.NoError(t, stop()) // exports what is left

	c.mu.Lock()
	defer c.mu.Unlock()
	require.Contains(t, c.services, "jetpull-broker")
	broadcast, callback := c.spans["broadcast"], c.spans["callback"]
	require.NotNil(t, broadcast)
	require.NotNil(t, callback)
	for _, span := range []*tracepb.Span{broadcast, callback} {
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", hex.EncodeToString(span.GetTraceId()))
	}
	require.Equal(t, "b7ad6b7169203331", hex.EncodeToString(broadcast.GetParentSpanId()))
	require.Equal(t, broadcast.GetSpanId(), callback.GetParentSpanId())
	require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-"+hex.EncodeToString(callback.GetSpanId())+"-01", parent)
}
