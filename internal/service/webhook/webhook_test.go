package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

func TestPolicy(t *testing.T) {
	lan := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	for _, tt := range []struct {
		addr             string
		public, any, lan bool
	}{
		{"8.8.8.8", true, true, true},
		{"2606:4700::1111", true, true, true},
		{"127.0.0.1", false, true, false},
		{"127.8.8.8", false, true, false},
		{"::1", false, true, false},
		{"::ffff:127.0.0.1", false, true, false},
		{"::ffff:8.8.8.8", true, true, true},
		{"10.1.2.3", false, true, true},
		{"10.2.2.3", false, true, false},
		{"192.168.1.1", false, true, false},
		{"172.16.0.1", false, true, false},
		{"fd00::1", false, true, false},
		{"100.64.0.1", false, true, false},
		{"198.18.0.1", false, true, false},
		{"64:ff9b::7f00:1", false, true, false},
		{"2002:7f00:1::", false, true, false},
		{"::127.0.0.1", false, true, false},
		{"::169.254.169.254", false, false, false},
		{"::ffff:0:127.0.0.1", false, true, false},
		// The address inside counts, in every form that has one.
		{"64:ff9b::808:808", true, true, true},
		{"64:ff9b::10.1.2.3", false, true, true},
		{"64:ff9b::169.254.169.254", false, false, false},
		{"64:ff9b:1::169.254.169.254", false, false, false},
		{"64:ff9b:1:a9fe:a9:fe00::", false, false, false},      // RFC 6052, prefix of 48 bits
		{"64:ff9b:1:12a9:fe:a9fe::", false, false, false},      // 56
		{"64:ff9b:1:1234:a9:fea9:fe00:0", false, false, false}, // 64
		{"64:ff9b:1::8.8.8.8", false, true, false},
		{"::ffff:0:169.254.169.254", false, false, false},
		{"2002:a9fe:a9fe::1", false, false, false},
		{"2002:808:808::1", false, true, false},
		{"2001:0:808:808:0:0:5601:5601", false, false, false}, // Teredo: a client at 169.254.169.254
		{"2001:0:a9fe:a9fe:0:0:f7f7:f7f7", false, false, false},
		{"2001:0:808:808:0:0:f7f7:f7f7", false, true, false},
		{"2606:4700::5efe:169.254.169.254", false, false, false}, // ISATAP
		{"2606:4700::200:5efe:10.2.3.4", false, true, false},
		{"2606:4700::200:5efe:8.8.8.8", true, true, true},
		{"169.254.169.254", false, false, false},
		{"fe80::1%eth0", false, false, false},
		{"fd00:ec2::254", false, false, false},
		{"fd00:ec2::253", false, true, false},
		{"100.100.100.200", false, false, false},
		{"192.0.0.192", false, false, false},
		{"64:ff9b::192.0.0.192", false, false, false},
		{"168.63.129.16", false, false, false},
		{"168.63.129.17", true, true, true},
		{"64:ff9b::168.63.129.16", false, false, false},
		{"fd00:ec2::23", false, false, false},
		{"fd20:ce::254", false, false, false},
		{"fd00:100::100:200", false, false, false},
		{"fd00:c1::a9fe:a9fe", false, false, false},
		{"fd00:a9fe:a9fe::1", false, false, false},
		{"fd00:42::42", false, false, false},
		{"::ffff:169.254.169.254", false, false, false},
		{"0.0.0.0", false, false, false},
		{"::", false, false, false},
		{"224.0.0.1", false, false, false},
		{"ff02::1", false, false, false},
		{"255.255.255.255", false, true, false},
	} {
		addr := netip.MustParseAddr(tt.addr)
		require.Equal(t, tt.public, Policy{}.Check(addr) == nil, "public: %s", tt.addr)
		require.Equal(t, tt.any, Policy{Any: true}.Check(addr) == nil, "any: %s", tt.addr)
		require.Equal(t, tt.lan, Policy{Allowed: lan}.Check(addr) == nil, "lan: %s", tt.addr)
	}
}

func TestAddressIsCheckedAtTheDial(t *testing.T) {
	reached := false
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer srv.Close()
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	require.NoError(t, err)
	c := NewClient(Policy{}, 5*time.Second)
	defer c.Close()
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0x7f000001", "2130706433"} {
		err := postTo(t, c, "http://"+host+":"+port+"/", http.Header{}, nil)
		require.Error(t, err, host)
	}
	require.ErrorIs(t, postTo(t, c, "http://localhost:"+port, http.Header{}, nil), ErrForbiddenAddress)
	require.False(t, reached)
	require.NoError(t, postTo(t, NewClient(Policy{Any: true}, 5*time.Second), srv.URL, http.Header{}, nil))
	require.True(t, reached)
}

// The error of a request goes to logs: what a URL has in its query, and before its
// host, does not.
func TestErrorsHideTheSecretsOfURLs(t *testing.T) {
	c := NewClient(Policy{Any: true}, 5*time.Second)
	defer c.Close()
	const secret = "s3cr3t"
	for _, url := range []string{
		"http://127.0.0.1:1/hook?token=" + secret + "&a=b", "http://u:" + secret + "@127.0.0.1:1/hook#" + secret, "http://" + secret + "@127.0.0.1:1/hook",
		"http://127.0.0.1:1/hook\x00?" + secret, "http://127.0.0.1:no/hook?" + secret, "http://u:" + secret + "%zz@127.0.0.1/hook?" + secret,
	} {
		err := postTo(t, c, url, http.Header{}, nil)
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), secret)
		require.Contains(t, err.Error(), "http://")
		_, err = c.Exchange(t.Context(), Request{Method: "POST", URL: url})
		require.ErrorIs(t, err, ErrNotSent)
		require.NotContains(t, err.Error(), secret)
	}
	err := postTo(t, c, "http://127.0.0.1:1/hook?token="+secret, http.Header{}, nil)
	require.ErrorContains(t, err, `Post "http://127.0.0.1:1/hook?…": `)
}

func postTo(t *testing.T, c *Client, url string, header http.Header, payload []byte) error {
	t.Helper()
	_, err := post(t, c, Request{URL: url, Header: header, Body: payload})
	return err
}

// post returns an error for an answer that is not a complete 2xx.
func post(t *testing.T, c *Client, r Request) (*Answer, error) {
	t.Helper()
	r.Method, r.Limit = http.MethodPost, ReusableLimit
	answer, err := c.Exchange(t.Context(), r)
	if err == nil {
		err = answer.Err()
	}
	return answer, err
}

func TestAnswersThatAreNoSuccess(t *testing.T) {
	stop := make(chan struct{})
	hits := map[string]int{}
	mux := http.NewServeMux()
	status := func(path string, code int) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			hits[r.URL.Path]++
			w.Header().Set("Location", "/ok")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "because")
		})
	}
	status("/ok", 204)
	status("/redirect", 302)
	status("/gone", 410)
	status("/broken", 500)
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/reset", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	})
	endless := func(pause time.Duration) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			block := make([]byte, 32<<10)
			if pause > 0 {
				block = block[:1]
			}
			for r.Context().Err() == nil {
				if _, err := w.Write(block); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(pause):
				case <-stop:
					return
				}
			}
		}
	}
	mux.HandleFunc("/flood", endless(0))
	mux.HandleFunc("/drip", endless(50*time.Millisecond))
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write(make([]byte, 8))
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	defer close(stop)
	c := NewClient(Policy{Any: true}, 1500*time.Millisecond)
	defer c.Close()

	send := func(path string) error { return postTo(t, c, srv.URL+path, http.Header{}, []byte("x")) }
	require.NoError(t, send("/ok"))
	for path, code := range map[string]int{"/redirect": 302, "/gone": 410, "/broken": 500} {
		require.EqualError(t, send(path), fmt.Sprintf("answered with status %d: \"because\"", code))
	}
	require.Equal(t, 1, hits["/ok"], "a redirect is not followed")
	require.ErrorIs(t, send("/hang"), context.DeadlineExceeded)
	require.Error(t, send("/reset"))
	require.NoError(t, send("/flood"), "the beginning of a long answer is enough")
	require.ErrorContains(t, send("/drip"), "answered with status 200, but the answer broke off: no answer within 1.5s")
	require.ErrorContains(t, send("/short"), "answered with status 200, but the answer broke off")
	require.Error(t, postTo(t, c, "http://127.0.0.1:1/", http.Header{}, nil))
	require.Error(t, postTo(t, c, "::", http.Header{}, nil))
}

func TestSignatureAgainstTheOfficialLibrary(t *testing.T) {
	old, current := NewSecret(), NewSecret()
	signer, err := NewSigner(current + " " + old)
	require.NoError(t, err)
	payload := []byte(`{"a":1}`)
	h := http.Header{}
	signer.Sign(h, "msg_1", time.Now(), payload)
	for _, secret := range []string{old, current} {
		wh, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		require.NoError(t, wh.Verify(payload, h))
		require.Error(t, wh.Verify([]byte(`{"a":2}`), h))
	}
	other, err := standardwebhooks.NewWebhook(NewSecret())
	require.NoError(t, err)
	require.Error(t, other.Verify(payload, h))
	for _, bad := range []string{"", "whsec_", "whsec_!!!!", "c2hvcnQ=", "whsec_" + string(make([]byte, 10))} {
		_, err := NewSigner(bad)
		require.True(t, errors.Is(err, ErrSecret), "%q", bad)
	}
}
