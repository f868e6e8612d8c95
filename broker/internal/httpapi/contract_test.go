package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/xid"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
)

func TestPutAndConditions(t *testing.T) {
	s := newSite(t, nil)
	const condition = "Bad Request: Update is missing `If-Unmodified-Since` header "
	for _, path := range []string{"/producer/x", "/channel/x", "/channel/ch/consumer/x"} {
		more := url.Values{}
		if strings.Contains(path, "consumer") {
			more.Set("callbackUrl", "http://127.0.0.1/cb")
		}
		s.expect(415, `Media type not supported: Content-Type "": give application/x-www-form-urlencoded`, "PUT", path, nil, "")
		s.expect(415, `Media type not supported: Content-Type "application/json": give application/x-www-form-urlencoded`, "PUT", path,
			header{"Content-Type": "application/json"}, "{}")
		s.expect(404, "Request resource not found", "GET", path, nil, "")
		a := s.expect(200, "", "PUT", path, header{"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}, more.Encode())
		var made struct {
			ID, Name, Token string
			ChangedAt       time.Time
		}
		s.json(a, &made)
		require.Equal(t, "x", made.ID)
		require.Equal(t, "x", made.Name)
		require.NotEmpty(t, made.Token)
		modified := a.header.Get("Last-Modified")
		require.Equal(t, made.ChangedAt.UTC().Format(http.TimeFormat), modified)
		require.Equal(t, a.body, s.expect(200, "", "GET", path, nil, "").body)

		more.Set("name", "New name")
		more.Set("token", made.Token)
		s.expect(400, condition, "PUT", path, formType, more.Encode())
		s.expect(412, "Precondition Failed", "PUT", path, with(formType, header{"If-Unmodified-Since": "Mon, 02 Jan 2006 15:04:05 GMT"}), more.Encode())
		changed := s.expect(200, "", "PUT", path, with(formType, header{"If-Unmodified-Since": modified}), more.Encode())
		same := s.expect(200, "", "PUT", path, with(formType, header{"If-Unmodified-Since": changed.header.Get("Last-Modified")}), more.Encode())
		require.Equal(t, changed.body, same.body, "a PUT that changes nothing leaves ChangedAt alone")
		require.Contains(t, same.body, "New name")
	}
	s.expect(400, "", "PUT", "/producer/y", formType, "name=%zz")
	for _, form := range []string{
		"", "callbackUrl=/relative", "callbackUrl=ftp://h/", "callbackUrl=http://", "callbackUrl=http://h/&type=both",
		"callbackUrl=http://h/&signingSecret=short",
	} {
		s.expect(400, "", "PUT", "/channel/ch/consumer/bad", formType, form)
	}
	for _, value := range []string{"0", "abc", "65537", "1.5"} {
		s.expect(400, fmt.Sprintf("Bad Request: concurrency: %q: give a whole number from 1 to 65536", value),
			"PUT", "/channel/ch/consumer/bad", formType, "callbackUrl=http://h/&concurrency="+value)
	}
	for _, value := range []string{"-1", "NaN", "nan", "0", "1000001"} {
		s.expect(400, fmt.Sprintf("Bad Request: rateLimit: %q: give a number of callbacks per second, more than 0 and up to 1000000", value),
			"PUT", "/channel/ch/consumer/bad", formType, "callbackUrl=http://h/&rateLimit="+value)
	}
	for _, host := range []string{"a:99999", "a:65536", "a:0", "[::1]:70000"} {
		s.expect(400, fmt.Sprintf(`Bad Request: callbackUrl: URL "http://%s/?…" has no port from 1 to 65535: give one`, host),
			"PUT", "/channel/ch/consumer/bad", formType, url.Values{"callbackUrl": {"http://" + host + "/?key=secret"}}.Encode())
	}
	s.expect(404, "", "GET", "/channel/ch/consumer/bad", nil, "")
	s.expect(404, "Request resource not found", "PUT", "/channel/none/consumer/k", formType, "callbackUrl=http://h/")
	k := s.expect(200, "", "PUT", "/channel/ch/consumer/full", formType,
		"callbackUrl=http://h/&concurrency=3&rateLimit=2.5&signingSecret=whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz")
	require.Contains(t, k.body, `"Concurrency":3,"RateLimit":2.5,`)
	require.Contains(t, k.body, `"Signed":true`)
	require.NotContains(t, k.body, "whsec_")
}

// The headers of a consumer are checked, and their values are never shown.
func TestHeadersOfAConsumer(t *testing.T) {
	s := newSite(t, nil)
	for text, want := range map[string]string{
		`X-Key: a`:                         `it is no JSON object with strings as values: give one, such as {"X-Api-Key":"…"}`,
		`{"X-Key":1}`:                      `it is no JSON object with strings as values: give one, such as {"X-Api-Key":"…"}`,
		`{"":"a"}`:                         `"" is no name of an HTTP header: use letters, digits and hyphens`,
		`{"X Key":"a"}`:                    `"X Key" is no name of an HTTP header: use letters, digits and hyphens`,
		`{"webhook-id":"a"}`:               `"webhook-id" is a header that callbacks have anyway: use another`,
		`{"content-type":"a"}`:             `"content-type" is a header that callbacks have anyway: use another`,
		`{"Connection":"a"}`:               `"Connection" is a header that callbacks have anyway: use another`,
		`{"X-Broker-New":"a"}`:             `"X-Broker-New" is a header of the broker: use another`,
		`{"X-Broker-Consumer-Token":"a"}`:  `"X-Broker-Consumer-Token" is a header of the broker: use another`,
		`{"X-Key":"a\nb"}`:                 `the value of "X-Key": it has a control character, which no HTTP header can carry: leave it out`,
		`{"X-Key":" a"}`:                   `the value of "X-Key": it begins or ends with a space or tab, which no HTTP header can carry there: leave it out`,
		`{"X-Key":"a","x-key":"b"}`:        `"X-Key" is there twice: the names of headers have no case`,
		`{` + manyHeaders(21) + `"X":"a"}`: `it has 22 headers: give 20 at most`,
	} {
		s.expect(400, "Bad Request: headers: "+want, "PUT", "/channel/ch/consumer/bad", formType,
			url.Values{"callbackUrl": {"http://h/"}, "headers": {text}}.Encode())
	}
	s.expect(404, "", "GET", "/channel/ch/consumer/bad", nil, "")
	form := url.Values{"token": {"kt"}, "callbackUrl": {"http://h/"}, "headers": {`{"x-api-key":"s3cret","X-Empty":""}`}}
	a := s.put("/channel/ch/consumer/k", form)
	require.Contains(t, a.body, `"Headers":{"X-Api-Key":"…","X-Empty":"…"}`)
	require.Equal(t, a.body, s.expect(200, "", "GET", "/channel/ch/consumer/k", nil, "").body)
	unmodified := with(formType, header{"If-Unmodified-Since": a.header.Get("Last-Modified")})
	require.Equal(t, a.body, s.expect(200, "", "PUT", "/channel/ch/consumer/k", unmodified, form.Encode()).body, "nothing has changed")
	form.Del("headers")
	require.NotContains(t, s.expect(200, "", "PUT", "/channel/ch/consumer/k", unmodified, form.Encode()).body, "Headers")
}

func manyHeaders(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"X-%d":"a",`, i)
	}
	return b.String()
}

func TestDeleteConsumer(t *testing.T) {
	s := newSite(t, nil)
	path := "/channel/ch/consumer/pull"
	s.broadcast("m", "x", nil)
	modified := s.do("GET", path, nil, "").header.Get("Last-Modified")
	s.expect(404, "", "DELETE", "/channel/ch/consumer/none", nil, "")
	s.expect(400, "", "DELETE", path, nil, "")
	s.expect(412, "", "DELETE", path, header{"If-Unmodified-Since": "x"}, "")
	s.expect(204, "", "DELETE", path, header{"If-Unmodified-Since": modified}, "")
	s.expect(404, "", "GET", path, nil, "")
	s.agree("/channel/ch") // the other node filters its jobs a moment later
	var m struct {
		Jobs []struct{ ListenerName string }
	}
	s.json(s.expect(200, "", "GET", "/channel/ch/message/m", nil, ""), &m)
	require.Len(t, m.Jobs, 1, "only the job of the other consumer is left")
}

func TestBroadcastChecksInOrder(t *testing.T) {
	s := newSite(t, func(c *broker.Config) { c.HTTP.MaxBodyBytes = 1000 })
	const path = "/channel/ch/broadcast"
	// Each request passes one check more than the one before.
	s.expect(404, "Request resource not found", "POST", "/channel/none/broadcast", nil, "")
	s.expect(403, "channel token does not match", "POST", path, nil, "")
	s.expect(403, "channel token does not match", "POST", path, header{"X-Broker-Channel-Token": "ctx"}, "")
	s.expect(401, "producer could not be found", "POST", path, header{"X-Broker-Channel-Token": "ct"}, "")
	s.expect(403, "producer token does not match", "POST", path, header{"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr"}, "")
	s.expect(413, "", "POST", path, producer, strings.Repeat("x", 1001))
	a := s.expect(201, "", "POST", path, producer, strings.Repeat("x", 1000))
	id, ok := strings.CutPrefix(a.header.Get("Location"), "/channel/ch/message/")
	require.True(t, ok)
	_, err := xid.FromString(id)
	require.NoError(t, err)
	s.broadcast("mine", "x", nil)
	s.expect(409, "duplicate message id for channel", "POST", path, with(producer, header{"X-Broker-Message-ID": "mine"}), "x")
	for _, id := range []string{"mine", "empty"} {
		s.expect(400, "invalid: the body is empty: a message needs a payload", "POST", path, with(producer, header{"X-Broker-Message-ID": id}), "")
	}
	s.expect(404, "", "GET", "/channel/ch/message/empty", nil, "")
	s.expect(405, "Method Not Allowed", "GET", path, producer, "")
	s.expect(201, "", "POST", path, with(producer, header{"Content-Type": ""}), "x")
}

func TestMessage(t *testing.T) {
	s := newSite(t, nil)
	begin := time.Now().Add(-time.Second)
	s.broadcast("text", "hello <&>", header{"X-Broker-Metadata-Headers": "X-A", "X-A": "1", "X-Broker-Message-Priority": "3"})
	s.broadcast("two", "x", header{"X-Broker-Metadata-Headers": "X-A, X-B", "X-A": "1", "X-B": "2", "X-Broker-Message-Priority": "1"})
	require.Contains(t, s.expect(200, "", "GET", "/channel/ch/message/two", nil, "").body, `"Headers":{"X-A":"1","X-B":"2"}`)
	s.broadcast("secrets", "x", header{"X-Broker-Metadata-Headers": "x-broker-channel-token,X-Broker-Producer-Token,Connection,X-B", "X-B": "2"})
	require.Contains(t, s.expect(200, "", "GET", "/channel/ch/message/secrets", nil, "").body, `"Headers":{"X-B":"2"}`)
	s.broadcast("binary", "\xff\x00", header{"Content-Type": ""})
	var m struct {
		ID, Payload, PayloadEncoding, ContentType, ProducedBy, Status string
		ReceivedAt, DispatchedAt                                      time.Time
		Jobs                                                          []struct{ ListenerEndpoint, ListenerName, Status string }
		Headers                                                       map[string]string
	}
	s.json(s.expect(200, "", "GET", "/channel/ch/message/text", nil, ""), &m)
	require.Equal(t, "hello <&>", m.Payload)
	require.Equal(t, "The producer", m.ProducedBy)
	require.Equal(t, "DISPATCHED", m.Status)
	require.Equal(t, map[string]string{"X-A": "1"}, m.Headers)
	require.Len(t, m.Jobs, 2)
	require.WithinRange(t, m.ReceivedAt, begin, time.Now())
	s.json(s.expect(200, "", "GET", "/channel/ch/message/binary", nil, ""), &m)
	require.Equal(t, "/wA=", m.Payload)
	require.Equal(t, "base64", m.PayloadEncoding)
	require.Equal(t, "application/octet-stream", m.ContentType)
	s.expect(404, "Request resource not found", "GET", "/channel/ch/message/none", nil, "")
	s.expect(404, "Request resource not found", "GET", "/channel/none/message/text", nil, "")

	work := s.work("GET", "queued-jobs")
	require.Len(t, work, 4)
	require.Equal(t, "text", work[0].Message.MessageID, "the higher priority is first")
	require.Equal(t, 3, work[0].Priority)
	require.Equal(t, "base64", work[3].Message.PayloadEncoding)
}

func TestPages(t *testing.T) {
	s := newSite(t, nil)
	for i := range 60 {
		s.put(fmt.Sprintf("/producer/p%02d", i), nil)
		s.broadcast(fmt.Sprintf("m%02d", i), "x", nil)
	}
	for _, list := range []struct{ path, last string }{{"/producers", "/producer/p59"}, {"/channel/ch/messages?status=102", "/channel/ch/message/m59"}} {
		type page struct {
			Result []string
			Pages  map[string]string
		}
		read := func(path string) (p page) {
			s.json(s.expect(200, "", "GET", path, nil, ""), &p)
			return p
		}
		first := read(list.path)
		require.Len(t, first.Result, 25)
		require.Equal(t, list.last, first.Result[0])
		second := read(first.Pages["next"])
		require.Len(t, second.Result, 25)
		require.Equal(t, first.Result, read(second.Pages["previous"]).Result)
		require.Empty(t, read(first.Pages["previous"]).Result)
		third := read(second.Pages["next"])
		require.NotEmpty(t, third.Result)
		require.Equal(t, second.Result, read(third.Pages["previous"]).Result)
		last := read(third.Pages["next"])
		require.Empty(t, last.Result)
		require.Empty(t, last.Pages)
		if strings.Contains(list.path, "status") {
			require.Contains(t, first.Pages["next"], "status=102")
		}
	}
	require.Contains(t, s.expect(200, "", "GET", "/channel/ch/messages?status=101", nil, "").body, `"Result":[]`)
	for bad, text := range map[string]string{
		"next=x":                               `next "x": give what a link of a page before has`,
		"next=" + url.QueryEscape("====") + "": `next "====": give what a link of a page before has`,
		"previous=MQ":                          `previous "MQ": give what a link of a page before has`, "next=NXw2&previous=NXw2": "next and previous: give one of them",
	} {
		s.expect(400, "invalid query parameter: "+text, "GET", "/producers?"+bad, nil, "")
	}
	for _, path := range []string{
		"/channel/none/messages", "/channel/none/consumers", "/channel/none/scheduled-messages",
		"/channel/ch/consumer/none/dlq",
	} {
		s.expect(404, "Request resource not found", "GET", path, nil, "")
	}
	require.JSONEq(t, `{"counts":{}}`, s.expect(200, "", "GET", "/channel/none/messages-status", nil, "").body)
	require.Contains(t, s.expect(200, "", "GET", "/channels", nil, "").body, `"Links":null`)
	require.Contains(t, s.expect(200, "", "GET", "/channel/ch/consumers", nil, "").body, "/channel/ch/consumer/pull")
}

func TestOddIDsRoundTrip(t *testing.T) {
	s := newSite(t, nil)
	for _, id := range []string{
		"a.b", "*", ">", "a b", "%", "a/b", "..", ".", "ünï", "日本語", "$JS", "a?b#c", "a:b", "\x01", strings.Repeat("x", 200),
		strings.Repeat("é", 200), "=41",
	} {
		escaped := strings.ReplaceAll(url.PathEscape(id), ".", "%2E")
		var made struct{ ID, BroadcastURL, ConsumersURL string }
		s.json(s.expect(200, "", "PUT", "/channel/"+escaped, formType, "token=ct"), &made)
		require.Equal(t, id, made.ID)
		s.put("/channel/"+escaped+"/consumer/"+escaped, url.Values{"callbackUrl": {"http://127.0.0.1:9/"}, "type": {"pull"}, "token": {"kt"}})
		var list struct{ Result []string }
		s.json(s.expect(200, "", "GET", made.ConsumersURL, nil, ""), &list)
		require.Len(t, list.Result, 1)
		var k struct{ ID string }
		s.json(s.expect(200, "", "GET", list.Result[0], nil, ""), &k)
		require.Equal(t, id, k.ID)
		h := producer
		if id != "\x01" {
			h = with(producer, header{"X-Broker-Message-ID": id})
		}
		location := s.expect(201, "", "POST", made.BroadcastURL, h, "x").header.Get("Location")
		var m struct{ ID string }
		s.json(s.expect(200, "", "GET", location, nil, ""), &m)
		if id != "\x01" {
			require.Equal(t, strings.TrimSpace(id), m.ID)
			s.expect(409, "", "POST", made.BroadcastURL, h, "x")
		}
		var jobs struct{ Result []workItem }
		s.json(s.expect(200, "", "GET", list.Result[0]+"/queued-jobs", jobTokens, ""), &jobs)
		require.Len(t, jobs.Result, 1)
	}
}

// Fields that are shown as text must be UTF-8. Others are refused by name, and nothing is created.
func TestBadUTF8IsRefused(t *testing.T) {
	s := newSite(t, nil)
	for _, r := range []struct{ method, path string }{
		{"GET", "/producer/a%ffb"},
		{"PUT", "/producer/a%ffb"},
		{"PUT", "/channel/%c3"},
		{"PUT", "/channel/ch/consumer/%ed%a0%80"},
		{"POST", "/channel/%ff/broadcast"},
		{"GET", "/channel/ch/message/%ff"},
		{"POST", "/channel/ch/consumer/pull/job/%ff"},
	} {
		s.expect(400, "Bad Request: the path "+strconv.Quote(r.path)+" is not UTF-8", r.method, r.path, formType, "callbackUrl=http://h/")
	}
	for _, field := range []string{"name", "token", "callbackUrl"} {
		form := url.Values{"callbackUrl": {"http://h/"}}
		form.Set(field, "http://h/\xff")
		for _, path := range []string{"/producer/y", "/channel/y", "/channel/ch/consumer/y"} {
			s.expect(400, "Bad Request: the form field "+strconv.Quote(field)+" is not UTF-8", "PUT", path, formType, form.Encode())
		}
	}
	for text, h := range map[string]header{
		`invalid: message ID: it is not UTF-8`:            {"X-Broker-Message-ID": "a\xffb"},
		`invalid: content type: it is not UTF-8`:          {"Content-Type": "text/\xff"},
		`invalid: metadata header "X-A": it is not UTF-8`: {"X-Broker-Metadata-Headers": "X-A", "X-A": "\xff"},
		"producer could not be found":                     {"X-Broker-Producer-ID": "\xff"},
		"channel token does not match":                    {"X-Broker-Channel-Token": "\xff"},
	} {
		status := map[string]int{"producer could not be found": 401, "channel token does not match": 403}[text]
		s.expect(max(400, status), text, "POST", "/channel/ch/broadcast", with(producer, h), "x")
	}
	var list struct{ Result []string }
	s.json(s.expect(200, "", "GET", "/channel/ch/messages", nil, ""), &list)
	require.Empty(t, list.Result)
	s.json(s.expect(200, "", "GET", "/producers", nil, ""), &list)
	require.Len(t, list.Result, 1)
	s.expect(201, "", "POST", "/channel/ch/broadcast", producer, "\xff")
}

// Values that no later request could send in a header are refused, and nothing is created.
func TestWhatNoHeaderCarriesIsRefused(t *testing.T) {
	s := newSite(t, nil)
	for _, tt := range []struct{ text, why string }{
		{"a\nb", "it has a control character"},
		{"a\r", "it has a control character"},
		{"a\x00", "it has a control character"},
		{"a\x7f", "it has a control character"},
		{" a", "it begins or ends with a space"},
		{"a\t", "it begins or ends with a space"},
		{" ", "it begins or ends with a space"},
	} {
		form := url.Values{"token": {tt.text}, "callbackUrl": {"http://h/"}, "role": {"read"}}.Encode()
		for _, path := range []string{"/producer/y", "/channel/y", "/channel/ch/consumer/y", "/channel/ch/access/y"} {
			a := s.expect(400, "", "PUT", path, formType, form)
			require.Contains(t, a.body, "Bad Request: token: "+tt.why, "%q", tt.text)
			if path != "/channel/ch/access/y" {
				s.expect(404, "", "GET", path, nil, "")
			}
		}
		path := "/producer/" + url.PathEscape(tt.text)
		a := s.expect(400, "", "PUT", path, formType, "token=x")
		require.Contains(t, a.body, "Bad Request: ID "+strconv.Quote(tt.text)+": "+tt.why)
		s.expect(404, "", "GET", path, nil, "")
	}
	token := "a b\tünï"
	s.put("/producer/a%20b", url.Values{"token": {token}})
	s.put("/channel/ch/consumer/y", url.Values{"token": {token}, "type": {"pull"}, "callbackUrl": {"http://h/"}})
	s.broadcast("m", "x", header{"X-Broker-Producer-ID": "a b", "X-Broker-Producer-Token": token})
	s.expect(200, "", "GET", "/channel/ch/consumer/y/queued-jobs", with(jobTokens, header{"X-Broker-Consumer-Token": token}), "")
}

func TestRoutesThatAreNot(t *testing.T) {
	s := newSite(t, nil)
	for _, path := range []string{"/", "/nothing", "/channel/", "//producers", "/producers//", "/nothing/", "/channel/ch/../ch", "/channel//consumers"} {
		s.expect(404, "Request resource not found", "GET", path, nil, "")
	}
	for path, allow := range map[string]string{
		"/producers": "GET, HEAD", "/producer/x": "DELETE, GET, HEAD, PUT",
		"/channel/ch/consumer/k/dlq": "DELETE, GET, HEAD, POST",
	} {
		a := s.expect(405, "Method Not Allowed", "PATCH", path, nil, "")
		require.Equal(t, allow, a.header.Get("Allow"))
	}
	a := s.expect(200, "", "GET", "/healthz", header{"X-Request-ID": "mine"}, "")
	require.Equal(t, "mine", a.header.Get("X-Request-ID"))
	s.expect(200, "", "GET", "/readyz", nil, "")
	s.expect(200, "", "GET", "/openapi.json", nil, "")
	status := s.expect(200, "", "GET", "/_status", nil, "").body
	require.Contains(t, status, `"AppStatus":3`)
	require.NotContains(t, status, `"ct"`, "tokens are not shown")
}

func TestAdminToken(t *testing.T) {
	s := newSite(t, func(c *broker.Config) { c.Admin.Token = "secret" })
	for _, r := range []struct{ method, path string }{
		{"GET", "/producers"},
		{"PUT", "/producer/x"},
		{"GET", "/channel/ch"},
		{"DELETE", "/channel/ch/consumer/pull"},
		{"GET", "/channel/ch/messages"},
		{"GET", "/job-status"},
	} {
		s.expect(401, "admin token missing or wrong", r.method, r.path, nil, "")
		s.expect(401, "admin token missing or wrong", r.method, r.path, header{"X-Broker-Admin-Token": "secret2"}, "")
	}
	s.expect(200, "", "GET", "/producers", header{"X-Broker-Admin-Token": "secret"}, "")
	s.expect(200, "", "GET", "/producers", header{"Authorization": "Bearer secret"}, "")
	s.broadcast("m", "x", nil)
	require.Len(t, s.work("POST", "claim"), 1, "workers need their own tokens only")
	s.expect(401, "admin token missing or wrong", "GET", "/metrics", nil, "")
	s.expect(200, "", "GET", "/metrics", header{"Authorization": "Bearer secret"}, "")
	for _, path := range []string{"/healthz", "/readyz", "/_status"} {
		s.expect(200, "", "GET", path, nil, "")
	}
}

func TestOpenMetrics(t *testing.T) {
	s := newSite(t, func(c *broker.Config) { c.Admin.Token, c.HTTP.OpenMetrics = "secret", true })
	s.expect(200, "", "GET", "/metrics", nil, "")
	s.expect(401, "", "GET", "/producers", nil, "")
}

// The location of a 201 leads to the message, or the ID is refused.
func TestSlashID(t *testing.T) {
	s := newSite(t, nil)
	for _, id := range []string{"/", "//", "a/", "/a"} {
		a := s.do("POST", "/channel/ch/broadcast", with(producer, header{"X-Broker-Message-ID": id}), "x")
		if a.status == 201 {
			require.Equal(t, 200, s.do("GET", a.header.Get("Location"), nil, "").status, id)
		} else {
			require.Equal(t, 400, a.status)
		}
	}
}

// Of two changes that were made by what the same GET has shown, one succeeds, however fast they follow each other.
func TestChangesThatFollowEachOtherFast(t *testing.T) {
	s := newSite(t, nil)
	s.changeFast("/channel/ch/consumer/pull", "callbackUrl=http://127.0.0.1:9/&type=pull&token=kt", "")
	s.changeFast("/producer/pr", "token=pt", "")
	s.changeFast("/channel/ch", "token=ct", "?force=true")
}

func (s *site) changeFast(path, fields, force string) {
	form := func(name string) string { return fields + "&name=" + name }
	for range 3 {
		read := s.expect(200, "", "GET", path, nil, "").header
		byTime := with(formType, header{"If-Unmodified-Since": read.Get("Last-Modified")})
		byTag := with(formType, header{"If-Match": read.Get("ETag")})
		changed := s.expect(200, "", "PUT", path, byTime, form("a"+read.Get("ETag"))).header
		s.expect(412, "Precondition Failed", "PUT", path, byTime, form("b"))
		s.expect(412, "Precondition Failed", "PUT", path, byTag, form("b"))
		s.expect(412, "Precondition Failed", "PUT", path, with(byTag, header{"If-Unmodified-Since": changed.Get("Last-Modified")}), form("b"))
		again := s.expect(200, "", "PUT", path, with(formType, header{"If-Match": `"0", ` + changed.Get("ETag")}), form("c"+read.Get("ETag"))).header
		require.NotEqual(s.t, changed.Get("ETag"), again.Get("ETag"))
		s.expect(412, "Precondition Failed", "DELETE", path, header{"If-Match": changed.Get("ETag")}, "")
	}
	stale := s.expect(200, "", "GET", path, nil, "").header
	s.expect(204, "", "DELETE", path+force, header{"If-Match": "*"}, "")
	s.expect(412, "Precondition Failed", "PUT", path, with(formType, header{"If-Match": stale.Get("ETag")}), form("d"))
	s.expect(404, "", "GET", path, nil, "")
	s.expect(200, "", "PUT", path, with(formType, header{"If-Unmodified-Since": stale.Get("Last-Modified")}), form("d"))
	s.expect(204, "", "DELETE", path, header{"If-Match": "*"}, "")
}
