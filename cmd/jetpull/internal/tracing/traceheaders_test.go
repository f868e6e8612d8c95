package tracing

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	secretToken = "s3cr3t-t0ken"
	// tracingChild makes this test binary a process that sets up tracing.
	tracingChild = "JETPULL_TEST_TRACING_CHILD"
)

// StartInChild sets up tracing in a process of its own, because
// OpenTelemetry logs to the standard error that it found when it was loaded. It
// returns all that the process wrote, and whether tracing was set up.
func StartInChild(t *testing.T, env map[string]string) (output string, ok bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTracingInChild$", "-test.v")
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "OTEL_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, tracingChild+"=1", "OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_TIMEOUT=1")
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	require.Contains(t, out.String(), "TestTracingInChild", "the child did not run: %v", err)
	return out.String(), err == nil
}

// TestTracingInChild is what the child does.
func TestTracingInChild(t *testing.T) {
	if os.Getenv(tracingChild) == "" {
		t.Skip("runs in a process that other tests start")
	}
	stop, err := Start(t.Context(), "test", slog.New(slog.NewTextHandler(os.Stderr, nil)))
	require.NoError(t, err)
	stop(t.Context())
}

// No value of a header gets out, however the variable is misspelt, and the
// command says which one it is.
func TestNoHeaderOfTheExportIsLogged(t *testing.T) {
	for name, value := range map[string]string{
		"colon for equals sign": "Authorization: Bearer " + secretToken,
		"colon, base64 padding": "Authorization: Basic " + secretToken + "==",
		"second entry":          "x-team=a,x-key " + secretToken,
		"bad escape":            "x-key=%zz" + secretToken,
		"comma in the value":    "x-key=a," + secretToken,
		"no name":               "=" + secretToken,
		"space in the name":     "x key " + secretToken + "=a",
	} {
		for _, variable := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
			t.Run(name+" "+variable, func(t *testing.T) {
				output, ok := StartInChild(t, map[string]string{variable: value})
				require.NotContains(t, output, secretToken)
				require.False(t, ok, "it would export without the header")
				require.Contains(t, output, "OTEL_EXPORTER_OTLP_… cannot be read")
			})
		}
	}
	output, ok := StartInChild(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:" + secretToken + "@127.0.0.1:port"})
	require.NotContains(t, output, secretToken)
	require.False(t, ok)
	require.Contains(t, output, "OTEL_EXPORTER_OTLP_… cannot be read")
}

// Headers that the exporter can read are not refused, and the exporter logs nothing about them.
func TestHeadersOfTheExportThatAreRight(t *testing.T) {
	for _, value := range []string{
		"x-key=" + secretToken,
		" x-key = " + secretToken + " , x-team=a ",
		"authorization=Basic%20" + secretToken + "==,x-empty=",
		"   ",
	} {
		output, ok := StartInChild(t, map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": value})
		require.True(t, ok, fmt.Sprintf("%q: %s", value, output))
		require.NotContains(t, output, secretToken, "%q", value)
	}
}
