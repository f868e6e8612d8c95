package security

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// privateHosts are ways to write addresses that callbacks may not reach: this machine, its networks, and what clouds serve on link-local
// addresses.
var privateHosts = []string{
	"127.0.0.1", "127.0.0.2", "127.1.2.3", "127.255.255.254", "0.0.0.0", "0", "0.1.2.3", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1",
	"0x7f.1",
	"0177.0.0.1", "0177.1", "017700000001", "127.0.0.01", "127.000.000.001", "localhost", "LOCALHOST", "localhost.", "a.localhost", "LocalHost.",
	"127.0.0.1.",
	"[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
	"[64:ff9b::127.0.0.1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[fe80::1]", "[fe80::1%25lo]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]",
	"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255", "169.254.169.254", "169.254.0.1", "100.64.0.1",
	"100.127.255.254",
	"192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
	"[::ffff:10.0.0.1]", "[::ffff:169.254.169.254]", "public.example@127.0.0.1", "public.example:80@127.0.0.1", "127.0.0.1%00.example",
	"[::ffff:0:127.0.0.1]",
	"１２７.0.0.1", "①②⑦.0.0.1", "127。0。0。1", "loc\u00adalhost", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "169.254.169.254.", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376",
}

// No callback reaches an address that is not public, however it is written.
func TestNoCallbackReachesAPrivateAddress(t *testing.T) {
	for name, tt := range map[string]struct {
		networks string
		attempts *regexp.Regexp
		register func(t *testing.T, s *system, i int, endpoint string) int
	}{
		"broker": {
			"--consumer-connection-networks", regexp.MustCompile(`(?m)^broker_attempts_total\{.*\} (\d+)$`),
			func(t *testing.T, s *system, i int, endpoint string) int {
				channel := fmt.Sprintf("/channel/c%d", i)
				s.must(t, http.MethodPut, channel, formType, "token=ct")
				form := url.Values{"token": {"k"}, "type": {"push"}, "callbackUrl": {endpoint}}
				status := s.ask(t, http.MethodPut, channel+"/consumer/k", http.Header{"Content-Type": {formType}, "Authorization": {"Bearer " + adminToken}},
					form.Encode()).status
				if status < 300 {
					a := s.ask(t, http.MethodPost, channel+"/broadcast", http.Header{
						"X-Broker-Channel-Token": {"ct"}, "X-Broker-Producer-Id": {"p"}, "X-Broker-Producer-Token": {"pt"},
					}, "x")
					require.Equal(t, http.StatusCreated, a.status, string(a.body))
				}
				return status
			},
		},
		"relay": {
			"--relay-networks", regexp.MustCompile(`(?m)^relay_attempt_seconds_count\{.*\} (\d+)$`),
			func(t *testing.T, s *system, i int, endpoint string) int {
				body := fmt.Sprintf(`{"post_endpoint":%q}`, endpoint)
				status := s.ask(t, http.MethodPut, fmt.Sprintf("/v1/receivers/r%d", i), bearer(adminToken), body).status
				if status < 300 {
					s.must(t, http.MethodPost, "/v1/messages", "application/json",
						fmt.Sprintf(`{"source_id":"s","message_id":"m-%d","receiver":"r%d","payload":1}`, i, i))
				}
				return status
			},
		},
	} {
		victim, err := net.Listen("tcp", ":0")
		require.NoError(t, err)
		var reached atomic.Int32
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				conn, err := victim.Accept()
				if err != nil {
					return
				}
				reached.Add(1)
				_ = conn.Close()
			}
		}()
		s := start(t, name, append(manyLogins, tt.networks, "public")...)
		if name == "broker" {
			s.must(t, http.MethodPut, "/producer/p", formType, "token=pt")
		} else {
			s.must(t, http.MethodPut, "/v1/senders/s", "application/json", `{"callback_endpoint":"none","token":"token-of-the-sender","sources":["s"]}`)
		}
		accepted := 0
		for i, host := range privateHosts {
			status := tt.register(t, s, i, fmt.Sprintf("http://%s:%d/hook", host, victim.Addr().(*net.TCPAddr).Port))
			require.True(t, status < 300 || status == http.StatusBadRequest, "%s: %s: %d", name, host, status)
			if status < 300 {
				accepted++
			}
		}
		tried := func() (n int) {
			for _, m := range tt.attempts.FindAllStringSubmatch(string(s.ask(t, http.MethodGet, "/metrics", bearer(adminToken), "").body), -1) {
				count, err := strconv.Atoi(m[1])
				require.NoError(t, err)
				n += count
			}
			return n
		}
		require.Eventually(t, func() bool { return tried() >= accepted }, 2*time.Minute, 100*time.Millisecond, "%s: %d callbacks of %d were tried", name,
			tried(), accepted)
		require.Zero(t, reached.Load(), "%s: connections to a private address", name)
		s.alive(t)
		require.NoError(t, victim.Close())
		<-ended
		t.Logf("%s: %d hosts, of which %d are refused at once", name, len(privateHosts), len(privateHosts)-accepted)
	}
}
