package page

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// other are labels and outcomes that use another word than "requeue" for delivering again what was given up or handled.
var other = regexp.MustCompile(`(?:Label: |label: |one\("\w+", |Text: |done\()"[^"]*(?i:\b(?:retry|redrive|replay|queue(?:d)? again)\b)`)

// One thing has one word on all pages.
func TestOneWordForRequeue(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, other.FindAllString(string(text), -1), file)
	}
}

// A page shows a text as it is, so no text has backticks.
func TestNoBackticks(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Value[0] == '"' && !strings.HasSuffix(name, "_test.go") {
				require.NotContains(t, text.Value, "`", name)
			}
			return true
		})
	}
	require.NotContains(t, wordsText, "`")
}

func TestCodesAreInWords(t *testing.T) {
	for code, want := range map[string]string{
		"PERMANENT": "permanent error", "to_receiver": "to receiver", "NO_ANSWER": "no answer", "redrive": "requeue", "skip": "skip", "<b>": "<b>", "": "",
	} {
		require.Equal(t, want, plain(code).Text)
	}
	require.Equal(t, "PERMANENT", plain("PERMANENT").Title, "the code of the interface")
}

func TestConfigurationsInWords(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := jetstream.ConsumerConfig{
		Description: "two\nlines", DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &start, FilterSubjects: []string{"a", "b.>"},
		AckWait: 30 * time.Second, BackOff: []time.Duration{time.Second, time.Minute}, MaxDeliver: 5, MaxAckPending: 1000, MaxWaiting: 512,
		MaxRequestMaxBytes: 2048, PriorityGroups: []string{"g"}, PriorityPolicy: jetstream.PriorityPolicyPinned, InactiveThreshold: time.Hour,
		Metadata: map[string]string{"team": "shop", "_nats.ver": "2"},
	}
	cluster := jetstream.ClusterInfo{Leader: "n1", Replicas: []*jetstream.PeerInfo{{Name: "n2", Current: true}, {Name: "n3"}}}
	require.Equal(t, []string{
		"Description: two lines",
		"It begins with the first message that was stored after this time: 2026-01-02T03:04:05.000Z.",
		"It delivers messages with these subjects only: a, b.>.",
		"Each message must be acknowledged within 30 s, or it is redelivered.",
		"Redeliveries wait for 1 s, 1 min; the last of these holds for all later ones.",
		"A message is delivered at most 5 times. After that it stays in the stream and is not delivered again.",
		"At most 1,000 messages may be unacknowledged at a time.",
		"Clients pull. At most 512 pull requests wait at a time.",
		"A pull request may ask for at most 2.0 KiB.",
		"Clients pull in the groups g. The policy is pinned client: one client gets all messages.",
		"Its state is kept on disk.",
		"Server n1 leads it. Its replicas are on n2, n3 (not current).",
		"It is deleted after 1 h without a client.",
		"Metadata team: shop",
	}, inWords("consumer", &jetstream.ConsumerInfo{Config: c, Cluster: &cluster}))
	c = jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, DeliverSubject: "to", MemoryStorage: true, DeliverPolicy: jetstream.DeliverNewPolicy}
	require.Equal(t, []string{
		"It delivers messages that were stored after the consumer was created.",
		"Messages count as acknowledged when they are delivered. Nothing is redelivered.",
		"The server pushes messages to the subject to.",
		"Its state is kept in memory.",
	}, inWords("consumer", &jetstream.ConsumerInfo{Config: c}))
	require.Equal(t, []string{"none"}, inWords("policy", jetstream.PriorityPolicyNone))
	require.Equal(t, []string{"10 messages", "1.0 KiB", "1 min", "3 of a subject", "1,000 bytes in a message"}, inWords("limits", jetstream.StreamConfig{
		MaxMsgs: 10, MaxBytes: 1024, MaxAge: time.Minute, MaxMsgsPerSubject: 3, MaxMsgSize: 1000,
	}))
	require.Empty(t, inWords("limits", jetstream.StreamConfig{MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1}))
}
