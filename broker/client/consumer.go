package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// Consumer is a pull consumer of a broker.
type Consumer struct {
	client *Client
	path   string
	header http.Header
}

// Consumer returns the pull consumer id of channel, with the tokens of both. It makes no request.
func (c *Client) Consumer(channel, channelToken, id, token string) *Consumer {
	return &Consumer{
		client: c, path: "/channel/" + httpserve.EscapeID(channel) + "/consumer/" + httpserve.EscapeID(id),
		header: http.Header{"X-Broker-Channel-Token": {channelToken}, "X-Broker-Consumer-Token": {token}},
	}
}

// Job is a message for one consumer. Its methods are safe for concurrent use.
type Job struct {
	ID          string
	MessageID   string
	Payload     []byte
	ContentType string
	EventType   string
	Headers     map[string]string
	Priority    int
	// Replay is the ID of the last replay that queued the job again, or empty. After a replay, the work may have been done before.
	Replay string
	// ClaimExpires is when the claim ends, unless it is extended. It is zero for a job from [Consumer.Queued].
	ClaimExpires time.Time

	consumer *Consumer
	claim    string
}

type jobJSON struct {
	ID             string
	Priority       int
	Replay         string
	ClaimToken     string
	ClaimExpiresAt time.Time
	Message        struct {
		MessageID, Payload, PayloadEncoding, ContentType, EventType string
		Headers                                                     map[string]string
	}
}

// Claim claims up to limit queued jobs. If there are none, it waits up to wait for one, and then returns none. Each claim lasts for the broker's
// claim time, 32.25 s by default, plus timeout in whole seconds.
func (k *Consumer) Claim(ctx context.Context, limit int, timeout, wait time.Duration) ([]*Job, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	if timeout > 0 {
		query.Set("timeout", timeout.String())
	}
	return k.list(ctx, http.MethodPost, "/claim?"+query.Encode())
}

// Queued lists up to limit queued jobs without claiming them.
func (k *Consumer) Queued(ctx context.Context, limit int) ([]*Job, error) {
	return k.list(ctx, http.MethodGet, "/queued-jobs?limit="+strconv.Itoa(limit))
}

func (k *Consumer) list(ctx context.Context, method, rest string) ([]*Job, error) {
	var answer struct{ Result []jobJSON }
	header, err := k.client.do(ctx, method, k.path+rest, k.header.Clone(), nil, nil, &answer)
	if err != nil {
		return nil, err
	}
	jobs := make([]*Job, len(answer.Result))
	for i, j := range answer.Result {
		payload := []byte(j.Message.Payload)
		if j.Message.PayloadEncoding == "base64" {
			if payload, err = base64.StdEncoding.DecodeString(j.Message.Payload); err != nil {
				return nil, fmt.Errorf("payload of job %s: %w", j.ID, err)
			}
		}
		jobs[i] = &Job{
			ID: j.ID, MessageID: j.Message.MessageID, Payload: payload, ContentType: j.Message.ContentType, EventType: j.Message.EventType,
			Headers: j.Message.Headers, Priority: j.Priority, Replay: j.Replay, ClaimExpires: local(j.ClaimExpiresAt, header), consumer: k,
			claim: j.ClaimToken,
		}
	}
	return jobs, nil
}

// Delivered reports that the work is done. It may be repeated. If the claim has ended, Delivered returns [ErrClaimLost].
func (j *Job) Delivered(ctx context.Context) error { return j.transition(ctx, "DELIVERED") }

// Dead reports that the work cannot be done, so that the job is not retried. It may be repeated. If the claim has ended, Dead returns [ErrClaimLost].
func (j *Job) Dead(ctx context.Context) error { return j.transition(ctx, "DEAD") }

func (j *Job) transition(ctx context.Context, state string) error {
	_, err := j.post(ctx, "", map[string]any{"NextState": state, "ClaimToken": j.claim}, nil)
	return err
}

// Extend renews the claim and returns when it ends: the broker's claim time plus timeout, in whole seconds, from now. If the claim has ended, Extend
// returns [ErrClaimLost].
func (j *Job) Extend(ctx context.Context, timeout time.Duration) (time.Time, error) {
	var answer struct{ ClaimExpiresAt time.Time }
	header, err := j.post(ctx, "/extend", map[string]any{"IncrementalTimeout": int(timeout / time.Second), "ClaimToken": j.claim}, &answer)
	return local(answer.ClaimExpiresAt, header), err
}

// local converts a time of the broker to this machine's clock. The clocks may differ by more than a claim lasts. The response's Date header has whole
// seconds, so the result is at most a second early. The result has a monotonic clock reading, so that it stays correct if this machine's clock is
// set.
func local(at time.Time, answer http.Header) time.Time {
	if at.IsZero() {
		return at
	}
	now := time.Now()
	sent, err := http.ParseTime(answer.Get("Date"))
	if ahead := now.Sub(sent); err == nil && ahead.Abs() > 2*time.Second {
		at = at.Add(ahead - time.Second)
	}
	return now.Add(at.Sub(now))
}

func (j *Job) post(ctx context.Context, rest string, body map[string]any, result any) (http.Header, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	header := j.consumer.header.Clone()
	header.Set("Content-Type", "application/json")
	answer, err := j.consumer.client.do(ctx, http.MethodPost, j.consumer.path+"/job/"+j.ID+rest, header, b, ErrClaimLost, result)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", j.ID, err)
	}
	return answer, nil
}
