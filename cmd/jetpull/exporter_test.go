package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// serves runs a command that prints its address until the test ends.
func serves(t *testing.T, args ...string) (base string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, append(args, "--listen", "127.0.0.1:0"), strings.NewReader(""), in, io.Discard)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		require.Zero(t, <-code)
	})
	var answer struct{ URL string } // with --json
	if json.Unmarshal([]byte(line), &answer) == nil {
		return strings.TrimSuffix(answer.URL, "/")
	}
	_, base, ok := strings.Cut(strings.TrimSuffix(line, "/\n"), "listening on ")
	require.True(t, ok, line)
	return base
}

// fetched is the answer to a request with a token.
func fetched(t *testing.T, address, token string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// The exporter and the console serve the same. The console takes the token of a reader, and no cookie of a user is needed.
func TestExporter(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, numbers(5)...)
	for name, args := range map[string][]string{
		"exporter":           {"exporter", "--nats", f.url},
		"exporter in JSON":   {"exporter", "--nats", f.url, "--json"},
		"exporter, a token":  {"exporter", "--nats", f.url, "--exporter-token", "secret"},
		"console":            {"console", "--nats", f.url},
		"console, a token":   {"console", "--nats", f.url, "--console-token", "secret"},
		"console, a reader":  {"console", "--nats", f.url, "--console-token", "admin", "--console-read-token", "secret"},
		"console, no reader": {"console", "--nats", f.url, "--console-token", "secret", "--console-read-token", "reader"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, token := serves(t, args...), ""
			if strings.Contains(name, ",") {
				token = "secret"
				for _, path := range []string{"/metrics", "/v1/scale/S/c?per=1"} {
					for _, wrong := range []string{"", "wrong"} {
						status, body := fetched(t, base+path, wrong)
						require.Equal(t, http.StatusUnauthorized, status, body)
					}
				}
			}
			status, body := fetched(t, base+"/v1/scale/S/c?per=2", token)
			require.Equal(t, http.StatusOK, status, body)
			require.JSONEq(t, `{"processes":3,"load":5,"pending":5,"ack_pending":0}`, body)
			status, body = fetched(t, base+"/metrics", token)
			require.Equal(t, http.StatusOK, status, body)
			require.Contains(t, body, `jetpull_consumer_pending{consumer="c",stream="S"} 5`)
		})
	}
	// A page of another site that has led its name to this machine (DNS rebinding) reads nothing.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, serves(t, "exporter", "--nats", f.url)+"/metrics", nil)
	require.NoError(t, err)
	request.Host = "example.com"
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusForbidden, answer.StatusCode)
	r := jetpullRun(t, "exporter", "--listen", "0.0.0.0:0")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "--exporter-token")
}

// The ScaledObject has the URL of an answer of the exporter, and reads a field that the answer has.
func TestScaledObject(t *testing.T) {
	var object struct {
		Spec struct {
			MaxReplicaCount int `yaml:"maxReplicaCount"`
			Triggers        []struct {
				Type     string
				Metadata map[string]string
			}
		}
	}
	manifests := strings.Split(readDeploy(t, "keda.yaml"), "\n---\n")
	require.Contains(t, manifests[0], "kind: ScaledObject")
	require.NoError(t, yaml.Unmarshal([]byte(manifests[0]), &object))
	require.Len(t, object.Spec.Triggers, 1)
	trigger := object.Spec.Triggers[0]
	require.Equal(t, "metrics-api", trigger.Type)
	require.Equal(t, "processes", trigger.Metadata["valueLocation"])
	require.Equal(t, "1", trigger.Metadata["targetValue"], "the answer is the number of processes")
	at, err := url.Parse(trigger.Metadata["url"])
	require.NoError(t, err)
	require.Equal(t, "http://jetpull-exporter:9091/v1/scale/ORDERS/worker", at.Scheme+"://"+at.Host+at.Path)
	require.Contains(t, readDeploy(t, "exporter.yaml"), "{name: jetpull-exporter}")

	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, "1")
	base := serves(t, "exporter", "--nats", f.url, "--exporter-token", "secret")
	status, body := fetched(t, base+"/v1/scale/S/c?"+at.RawQuery, "secret")
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"processes":1`)
}
