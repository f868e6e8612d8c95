package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// withheld begins a batch whose end is not sent until finish is called, which returns the answer.
func (s *site) withheld(lines string) (finish func(rest string) (int, []string)) {
	s.t.Helper()
	body, in := io.Pipe()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.url+"/v1/messages:batch", body)
	require.NoError(s.t, err)
	req.Header.Set("Authorization", "Bearer "+adminToken)
	answered := make(chan *http.Response, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			s.t.Error(err)
		}
		answered <- resp
	}()
	_, err = io.WriteString(in, lines)
	require.NoError(s.t, err)
	return func(rest string) (int, []string) {
		_, err := io.WriteString(in, rest)
		require.NoError(s.t, err)
		require.NoError(s.t, in.Close())
		resp := <-answered
		require.NotNil(s.t, resp)
		defer resp.Body.Close()
		var got []string
		for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
			got = append(got, scan.Text())
		}
		return resp.StatusCode, got
	}
}

func line(id string, size int) string {
	return fmt.Sprintf(`{"source_id":"a","message_id":%q,"receiver":"ci","payload":%q}`+"\n", id, strings.Repeat("x", size))
}

// The messages of a batch are stored as they come in, not at its end: for a client that never ends its batch the relay keeps no
// more than a line in memory.
func TestBatchIsReadLineByLine(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.receiver("ci", newPeer(t, nil).URL, nil)
	finish := s.withheld(line("1", 900_000) + line("2", 10) + "\n" + "{\n" + line("long", 1<<20) + line("3", 900_000) + `{"source_id":"a",`)
	for _, id := range []string{"1", "2", "3"} {
		eventually(t, func() bool { code, _ := s.call("GET", "/v1/messages/a/"+id, adminToken, nil); return code == 200 },
			id+" waits for the end of its batch")
	}
	code, lines := finish(`"message_id":"4","receiver":"ci","payload":1}`)
	require.Equal(t, 200, code)
	require.Len(t, lines, 6)
	for i, want := range []string{`"message_id":"1"`, `"message_id":"2"`, "bad_request", "too_large", `"message_id":"3"`, `"message_id":"4"`} {
		require.Contains(t, lines[i], want)
	}
}

// A batch that is refused as a whole may be stored in part. If it is sent again, the stored messages are duplicates.
func TestBatchWithTooManyLines(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.receiver("ci", "http://127.0.0.1:9/", object{"paused": true})
	var all strings.Builder
	for i := range 1001 {
		all.WriteString(line(fmt.Sprint(i), 1))
	}
	answer := s.want(http.StatusRequestEntityTooLarge, "POST", "/v1/messages:batch", adminToken, all.String())
	require.Contains(t, answer["error"].(object)["message"], "1,000")
	first, _, _ := strings.Cut(all.String(), "\n")
	code, body := s.call("POST", "/v1/messages:batch", adminToken, first)
	require.Equal(t, 200, code)
	require.Contains(t, string(body), "ARRIVED")
	require.EqualValues(t, 1000, s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["state"].(object)["backlog"])
}
