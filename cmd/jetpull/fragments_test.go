package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/jetpull/jetpull/jetpulltest" // so that go test runs again when it has changed
)

// fragments declares what the Go code of the how-to pages uses. Each fragment is the body of a function.
const fragments = `package fragments

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	brokerclient "github.com/jetpull/jetpull/broker/client"
	relayclient "github.com/jetpull/jetpull/relay/client"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/jetpulltest"
	"github.com/jetpull/jetpull/limit"
	"github.com/jetpull/jetpull/partition"
)

var (
	_ = require.Equal
	_ = jetpulltest.NewMsg
	_ = limit.Open
	_ = partition.Open
	_ = brokerclient.New
	_ = relayclient.New
	_ = jetpull.MaxAttempts
	_ = time.Second

	t                   *testing.T
	ctx                 context.Context
	js                  jetstream.JetStream
	kv                  jetstream.KeyValue
	sub                 *jetpull.Subscription
	handle              jetpull.Handler
	handler             = handle
	token, channelToken string
	order               any
	err                 error
)
`

// assigned finds a result of a fragment that the fragment does not use.
var assigned = regexp.MustCompile(`(?m)^(?:_|(\w+)), err :?= `)

// TestFragmentsOfPages compiles the Go code of the how-to pages.
func TestFragmentsOfPages(t *testing.T) {
	var code strings.Builder
	code.WriteString(fragments)
	for _, page := range []string{"retries", "partitions", "send"} {
		text, err := os.ReadFile("../../docs/" + page + ".md")
		require.NoError(t, err)
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, blocks, page)
		for _, b := range blocks {
			code.WriteString("\n// " + page + ".md\nfunc _() {\n" + b[1] + "\t_ = err\n")
			for _, m := range assigned.FindAllStringSubmatch(b[1], -1) {
				if m[1] != "" {
					code.WriteString("\t_ = " + m[1] + "\n")
				}
			}
			code.WriteString("}\n")
		}
	}
	file := filepath.Join(t.TempDir(), "fragments.go")
	require.NoError(t, os.WriteFile(file, []byte(code.String()), 0o600))
	out, err := exec.Command("go", "build", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
