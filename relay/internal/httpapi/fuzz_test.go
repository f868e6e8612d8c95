package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/tokens"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

// refused checks that an error is one for a client, and that its text is valid in an answer.
func refused(t *testing.T, err error) {
	t.Helper()
	e := describe(err)
	require.True(t, e.Status >= 400 && e.Status < 500, "%d %v", e.Status, err)
	data, err := json.Marshal(e)
	require.NoError(t, err)
	require.True(t, utf8.Valid(data))
}

// An accepted message can be stored, POSTed and shown.
func FuzzParseMessage(f *testing.F) {
	f.Add([]byte(`{"source_id":"a","message_id":"1","receiver":"ci","payload":{"n":1},"headers":{"X-A":"b"}}`))
	f.Add([]byte(`{"source_id":"\ud800","message_id":"\u0000","receiver":"..","payload":null}`))
	f.Add([]byte(`{"source_id":"a","headers":{"a":"1","A":"2"},"payload":[[[]]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseMessage(data)
		if err != nil {
			refused(t, err)
			return
		}
		require.True(t, json.Valid(m.Payload))
		for _, id := range []string{m.Source, m.ID, m.Receiver} {
			require.NoError(t, work.CheckID("id", id))
			back, err := tokens.ParseSubject(tokens.Subject(id))
			require.NoError(t, err)
			require.Equal(t, id, back)
		}
		header := http.Header{}
		for name, value := range m.Headers {
			require.Empty(t, header.Get(name))
			header.Set(name, value)
		}
		var out bytes.Buffer
		require.NoError(t, header.Write(&out))
	})
}

func request(body []byte) *http.Request {
	return httptest.NewRequest(http.MethodPut, "/", bytes.NewReader(body))
}

// An accepted configuration is within its limits, and is shown without a secret.
func FuzzReceiverAndSender(f *testing.F) {
	f.Add([]byte(`{"post_endpoint":"http://h/{source_id}","rate_limit":1,"window_size":0.5,"max_retries":0,"timeout":1e-3,"order":"source","secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}`))
	f.Add([]byte(`{"post_endpoint":"http://[::1]:0x/","ttl":1e400}`))
	f.Add([]byte(`{"post_endpoint":"http://h{source_id}","status_endpoint":"http://{source_id}/"}`))
	f.Add([]byte(`{"callback_endpoint":"none","token":"t","sources":[""],"secrets":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		body := defaultReceiver
		var r store.Receiver
		err := httpserve.ReadJSON(request(data), &body)
		if err == nil {
			err = body.apply(&r)
		}
		if err != nil {
			refused(t, err)
		} else {
			require.True(t, r.Timeout > 0 && r.Window > 0 && r.RetryAfter >= 0 && r.TTL >= 0 && r.MaxRetries >= 0 && r.RateLimit >= 0)
			u, err := url.Parse(r.PostEndpoint)
			require.NoError(t, err)
			require.NotEmpty(t, u.Host)
			_, err = json.Marshal(viewReceiver(r))
			require.NoError(t, err)
		}
		var s store.SenderConfig
		if err = configure(&s, true, data); err != nil {
			refused(t, err)
		} else {
			require.NotEmpty(t, s.Token)
			require.NotEmpty(t, s.Sources)
		}
	})
}

// Filters and IDs of failed messages are validated, or refused.
func FuzzOperation(f *testing.F) {
	f.Add([]byte(`{"filter":{"since":"1h","until":"1m"},"rate":10,"dry_run":true}`), "1h", "30s")
	f.Add([]byte(`{"ids":["1","18446744073709551616"]}`), "2026-01-02T15:04:05Z", "-0")
	f.Add([]byte("a\n\n{}\n"), "9999999h", "NaN")
	f.Fuzz(func(t *testing.T, data []byte, from, wait string) {
		var body operationBody
		err := httpserve.ReadJSON(request(data), &body)
		if err == nil {
			var o bulk.Operation
			if o, err = body.operation(store.Redrive, time.Now()); err == nil {
				var selection store.Selection
				require.NoError(t, json.Unmarshal(o.Spec, &selection))
				require.True(t, (selection.Filter != nil) != (selection.Seqs != nil) || len(body.IDs) == 0)
				require.True(t, o.Rate >= 0 && o.Rate <= maxRate)
			}
		}
		if err != nil {
			refused(t, err)
		}
		if _, err := moment("since", from, time.Now()); err != nil {
			refused(t, err)
		}
		r := request(nil)
		r.URL.RawQuery = url.Values{"wait": {wait}}.Encode()
		if d, err := httpserve.QueryDuration(r, "wait", maxWait); err != nil {
			refused(t, err)
		} else {
			require.True(t, d >= 0 && d <= maxWait)
		}
		lines := newLineReader(iotest.OneByteReader(bytes.NewReader(data)), -1, 40)
		for {
			line, err := lines.next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.True(t, err == nil && len(line) > 0 && len(line) <= 40 && !bytes.ContainsRune(line, '\n') || errors.Is(err, errLongLine))
		}
	})
}

// Lines are the same as in the complete body, whatever the size of the pieces, and whether or not the size of the body is known.
func TestLinesOfABatch(t *testing.T) {
	long := strings.Repeat("x", 50)
	body := "a\r\n\n  b \n" + long + "\n" + strings.Repeat("y", 40) + "\r\n   \n" + long
	for _, size := range []int64{-1, int64(len(body))} {
		for _, in := range []io.Reader{
			strings.NewReader(body), iotest.OneByteReader(strings.NewReader(body)),
			iotest.DataErrReader(strings.NewReader(body)),
		} {
			lines := newLineReader(in, size, 40)
			for _, want := range []string{"a", "b", "", strings.Repeat("y", 40), ""} {
				line, err := lines.next()
				if want == "" {
					require.ErrorIs(t, err, errLongLine)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, want, string(line))
			}
			_, err := lines.next()
			require.ErrorIs(t, err, io.EOF)
		}
	}
	// The end of the body may end a line that is too long, even where the buffer ends.
	for _, long := range []string{strings.Repeat("z", 41) + "\n", strings.Repeat("z", 42), strings.Repeat("z", 84)} {
		over := newLineReader(strings.NewReader(long), -1, 40)
		_, err := over.next()
		require.ErrorIs(t, err, errLongLine)
		_, err = over.next()
		require.ErrorIs(t, err, io.EOF)
	}
	short := newLineReader(strings.NewReader("ab"), 2, 40)
	line, err := short.next()
	require.NoError(t, err)
	require.Equal(t, "ab", string(line))
}
