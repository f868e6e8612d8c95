package work

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/webhook"
)

type attemptsStore struct {
	*memoryStore
	kept []domain.Attempt
}

func (s *attemptsStore) KeepAttempt(_ context.Context, _ domain.JobID, a domain.Attempt) error {
	s.kept = append(s.kept, a)
	return nil
}

// echo answers with the request it got, after some other text.
type echo struct{ before int }

func (e echo) Exchange(_ context.Context, r webhook.Request) (*webhook.Answer, error) {
	body := strings.Repeat("x", e.before) + strings.Repeat(r.Header["X-Broker-Consumer-Token"][0]+",", 1000)
	return &webhook.Answer{Code: 500, Body: []byte(body[:min(len(body), r.Limit)])}, errors.New("answered with status 500")
}

// A long token, such as a JWT, is masked wherever an answer repeats it.
func TestLongTokenIsMasked(t *testing.T) {
	for _, token := range []string{strings.Repeat("s3cret", 150), "s3cret-of-20-letters"} {
		for _, before := range []int{0, 3500, 3800, 4090} {
			s := &attemptsStore{memoryStore: newMemoryStore(1)}
			parts := partsOf(s)
			parts.Poster = echo{before}
			b := New(parts)
			c := pushed
			c.Token = token
			done, err := b.Dispatch.callback(t.Context(), c, nil, domain.Message{ID: "m"}, domain.Job{})
			require.Error(t, err)
			b.Jobs.attempted(t.Context(), c, domain.Job{Status: domain.Queued}, done)
			require.NotContains(t, string(s.kept[0].Body), "s3cret", "after %d bytes", before)
			require.LessOrEqual(t, len(s.kept[0].Body), attemptBody)
		}
	}
}

// A producer cannot mark a message as a replay, or sign it: only the broker sets these headers.
func TestProducerForgesNoReplay(t *testing.T) {
	b := New(partsOf(newMemoryStore(0)))
	h := b.Dispatch.callbackHeader(pushed, domain.Message{
		ID:      "m",
		Headers: map[string]string{"x-broker-replay": "1-1", "X-A": "1", "webhook-signature": "v1,forged", "Webhook-Id": "x"},
	}, domain.Job{})
	require.NotContains(t, h, "X-Broker-Replay")
	require.Contains(t, h, "X-A")
	require.NotContains(t, h, "Webhook-Signature")
	require.NotContains(t, h, "Webhook-Id")
}

// The token's header cannot be one that callbacks have anyway.
func TestTokenHeaderIsNoneOfTheOthers(t *testing.T) {
	b := New(partsOf(newMemoryStore(0)))
	for name := range b.Dispatch.callbackHeader(pushed, domain.Message{EventType: "e"}, domain.Job{Replay: "1-1"}) {
		if name != testRules.TokenHeader {
			require.ErrorContains(t, CheckHeaderName(strings.ToLower(name)), "is a header that callbacks have anyway", name)
		}
	}
	require.NoError(t, CheckHeaderName(testRules.TokenHeader))
}
