package relay

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/relay/internal/machine"
)

// The relay shows all that it knows of a message: the request until it is DONE, the answer to each attempt, and the message itself in a list.
func TestTheStoryOfAMessage(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r := newPeer(t, func(_ int, got seen) (int, string) {
		if strings.Contains(got.Body, "refused") {
			return 422, "no such order"
		}
		return 200, `{"ok":true}`
	})
	s.receiver("ci", r.URL, object{"max_retries": 0})
	for _, id := range []string{"a1", "refused", "a2"} {
		m := message("shop", id, "ci")
		m["headers"] = object{"X-Order": id}
		s.want(202, "POST", "/v1/messages", adminToken, m)
	}
	s.awaitStatus("shop", "a1", "DONE")
	s.awaitStatus("shop", "a2", "DONE")
	failed := s.awaitStatus("shop", "refused", "FAILED")
	answer := failed["attempts"].([]any)[0].(object)["answer"].(object)
	require.Equal(t, "no such order", answer["body"])
	require.Contains(t, answer["headers"].(object)["Content-Type"], "text/plain")
	require.Nil(t, s.status("shop", "a1")["attempts"].([]any)[0].(object)["answer"].(object)["body"], "it is the response")

	eventually(t, func() bool { return len(s.failed("")) == 1 }, "it is not on the list")
	request := s.want(200, "GET", "/v1/messages/shop/refused/request", adminToken, nil)
	require.Equal(t, object{"X-Order": "refused"}, request["headers"])
	payload, err := base64.StdEncoding.DecodeString(request["payload"].(string))
	require.NoError(t, err)
	require.JSONEq(t, `{"n":"refused"}`, string(payload))
	s.want(404, "GET", "/v1/messages/shop/a1/request", adminToken, nil)
	s.operate("purge", object{"ids": []string{s.failed("")[0]["id"].(string)}})
	gone := s.want(404, "GET", "/v1/messages/shop/refused/request", adminToken, nil)
	require.Contains(t, gone["error"].(object)["message"], "not kept any more")
	s.want(404, "GET", "/v1/messages/shop/none/request", adminToken, nil)

	s.want(200, "PATCH", "/v1/receivers/ci", adminToken, object{"paused": true})
	s.want(202, "POST", "/v1/messages", adminToken, message("shop", "waits", "ci"))
	eventually(t, func() bool { // the entry is stored after the record
		code, _ := s.call("GET", "/v1/messages/shop/waits/request", adminToken, nil)
		return code == 200
	}, "the request of a message that waits is not shown")

	list := func(query string) (ids []string, cursor string) {
		page := s.want(200, "GET", "/v1/messages?"+query, adminToken, nil)
		for _, item := range page["items"].([]any) {
			ids = append(ids, item.(object)["message_id"].(string))
		}
		cursor, _ = page["cursor"].(string)
		return ids, cursor
	}
	all, _ := list("")
	require.Len(t, all, 4)
	require.Equal(t, "waits", all[0], "the last changed is the first")
	done, _ := list("status=DONE")
	require.ElementsMatch(t, []string{"a1", "a2"}, done)
	found, _ := list("message=a2&receiver=ci&source=shop&since=1h")
	require.Equal(t, []string{"a2"}, found)
	found, _ = list("until=1h")
	require.Empty(t, found)
	var pages []string
	for cursor := "1000000"; cursor != ""; {
		found, cursor = list("limit=1&cursor=" + cursor)
		pages = append(pages, found...)
	}
	require.Equal(t, all, pages)
	s.want(400, "GET", "/v1/messages?status=none", adminToken, nil)
	s.want(401, "GET", "/v1/messages", "wrong", nil)
}

// A receiver that refuses every call is known as such when nothing waits for it any more.
func TestAReceiverThatRefusesEveryCall(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.receiver("ci", "http://127.0.0.1:1", object{"max_retries": 7, "retry_after": 0}) // each after the fifth waits for the breaker, a second
	require.NotContains(t, s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["state"], "refused", "this process has made no POST")
	s.want(202, "POST", "/v1/messages", adminToken, message("shop", "a", "ci"))
	s.awaitStatus("shop", "a", "FAILED")
	eventually(t, func() bool {
		state := s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["state"].(object)
		return state["failed"] == 1.0 && state["refused"] == 8.0 && state["refused_since"] != nil
	}, "the failures are not counted")
	list := s.want(200, "GET", "/v1/receivers", adminToken, nil)["items"].([]any)
	require.EqualValues(t, 1, list[0].(object)["state"].(object)["failed"])
	messages := s.want(200, "GET", "/v1/messages", adminToken, nil)["items"].([]any)
	require.EqualValues(t, 8, messages[0].(object)["attempts"])
}

// The list of messages counts all attempts, also those that the record keeps no more.
func TestAllAttemptsAreCounted(t *testing.T) {
	t.Parallel()
	n, err := Start(t.Context(), testConfig(t.TempDir()), testLog())
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Stop(context.Background())) }()
	many := machine.Record{Source: "shop", ID: "a", Receiver: "ci", Status: machine.Done, Attempt: 61, Attempts: make([]machine.Attempt, 50)}
	_, err = n.store.Create(many)(t.Context())
	require.NoError(t, err)
	messages := (&site{t, n.URL()}).want(200, "GET", "/v1/messages", adminToken, nil)["items"].([]any)
	require.EqualValues(t, 61, messages[0].(object)["attempts"])
}
