package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service"
)

func TestSampleConfigIsTheDefault(t *testing.T) {
	got := DefaultConfig()
	require.NoError(t, got.ReadINI([]byte(SampleConfig())))
	require.Empty(t, got.Warnings)
	require.Empty(t, got.Seed.Skipped)
	require.Equal(t, 7*24*time.Hour, got.Prune.Retention, "memory and disk level off by themselves")
	require.Len(t, got.Seed.Consumers, 1)
	got.Seed, got.seeded = SeedData{}, false
	require.Equal(t, DefaultConfig(), got)
	require.NoError(t, got.Validate())
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "broker.cfg")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestConfigSourcesInOrder(t *testing.T) {
	path := writeFile(t, "[broker]\nmax-retry=1\nconcurrency=2\nrational-delay-in-seconds=0.5\n")
	c, err := LoadConfig(Sources{
		File: path,
		Env: func(name string) (string, bool) {
			switch name {
			case "JETPULL_BROKER_BROKER_MAX_RETRY":
				return "2", true
			case "JETPULL_BROKER_NATS_STORE_DIR":
				return "here", true
			}
			return "", false
		},
		Flags: map[string]string{"broker-max-retry": "3"},
	})
	require.NoError(t, err)
	require.Equal(t, 3, c.Dispatch.MaxRetry)
	require.Equal(t, 2, c.Dispatch.Concurrency)
	require.Equal(t, 500*time.Millisecond, c.Dispatch.RationalDelay)
	require.Equal(t, "here", c.NATS.StoreDir)
}

func TestConfigOfTheOriginalIsAccepted(t *testing.T) {
	c := DefaultConfig()
	require.NoError(t, c.ReadINI([]byte(`[rdbms]
dialect=mysql
connection-url=x
[http]
listener=127.0.0.1:7050
[log]
max-backups=3
[broker]
priority-dispatcher-enabled=true
retry-backoff-delays-in-seconds=5,30
[initial-channels]
c=Channel
[initial-channel-tokens]
c=secret
[initial-consumers]
good=http://127.0.0.1/x
badtype=http://127.0.0.1/x
badchannel=http://127.0.0.1/x
relative=/x
password=http://u:s3cret@h:x/?k=s3cret
nosection=http://127.0.0.1/x
[good]
token=t
channel=c
type=
[badtype]
channel=c
type=pushpull
[badchannel]
channel=unknown
[relative]
channel=c
[password]
channel=c
`)))
	require.Len(t, c.Warnings, 3)
	require.Equal(t, []SeedConsumer{{SeedItem: SeedItem{"good", "good", "t"}, CallbackURL: "http://127.0.0.1/x", Channel: "c", Type: Push}},
		c.Seed.Consumers)
	require.Len(t, c.Seed.Skipped, 5)
	require.NotContains(t, fmt.Sprint(c.Seed.Skipped), "s3cret", "it is in the log and in /_status")
	require.Equal(t, []time.Duration{5 * time.Second, 30 * time.Second}, c.Dispatch.Backoff)
}

func TestConfigIsRefusedByName(t *testing.T) {
	for _, tt := range []struct{ ini, want string }{
		{"[broker]\nmax-retries=3\n", "[broker] max-retries: no such key"},
		{"[brokers]\nmax-retry=3\n", "[brokers]: no such section"},
		{"stray=3\n", "[DEFAULT]: no such section"},
		{"[broker]\nmax-retry=many\n", `[broker] max-retry: "many" is not a whole number`},
		{"[broker]\nmax-retry=-1\n", `[broker] max-retry: "-1"`},
		{"[broker]\nmax-retry=-99999999999999999999\n", `[broker] max-retry: "-99999999999999999999"`},
		{"[broker]\nretry-backoff-delays-in-seconds=5,x\n", `[broker] retry-backoff-delays-in-seconds: "x"`},
		{"[broker]\nretry-backoff-delays-in-seconds=,\n", `[broker] retry-backoff-delays-in-seconds`},
		{"[broker]\nrecovery-workers-enabled=maybe\n", `[broker] recovery-workers-enabled: "maybe"`},
		{"[http]\nread-timeout=NaN\n", `[http] read-timeout: "NaN"`},
		{"[http]\nread-timeout=-1e999\n", `[http] read-timeout: "-1e999" is not a number of seconds from 0`},
		{"[consumer-connection]\nconnection-timeout-in-seconds=0\n", `[consumer-connection] connection-timeout-in-seconds: "0"`},
		{"[log]\nlog-level=loud\n", `[log] log-level: "loud" is not one of`},
		{"[gateway-auth]\nmode=oauth\n", `[gateway-auth] mode: "oauth"`},
		{"[initial-channel-tokens]\nghost=x\n", "[initial-channel-tokens] ghost"},
		{"[initial-consumers]\nk=http://h/\n[k]\nchanel=c\n", "[k] chanel"},
		{"[initial-consumers]\nhttp=http://h/\n[http]\nlistener=127.0.0.1:1\n", "[initial-consumers] http"},
		{"no ini at all", "not an INI file"},
	} {
		err := DefaultConfig().ReadINI([]byte(tt.ini))
		require.ErrorContains(t, err, tt.want, tt.ini)
	}
}

func TestConfigClampsWhatIsTooLarge(t *testing.T) {
	for _, tt := range []struct {
		section, key, value, bound string
		got                        func(*Config) any
		want                       any
	}{
		{"broker", "max-retry", "256", "255", func(c *Config) any { return c.Dispatch.MaxRetry }, 255},
		{"broker", "max-retry", "99999999999999999999", "255", func(c *Config) any { return c.Dispatch.MaxRetry }, 255},
		{"http", "read-timeout", "1e12", "3153600000", func(c *Config) any { return c.HTTP.ReadTimeout }, service.Century},
		{"prune", "message-retention-days", "36501", "36500", func(c *Config) any { return c.Prune.Retention }, service.Century},
		{"scheduler", "min-schedule-delay-minutes", "1e999", "52560000", func(c *Config) any { return c.Scheduler.MinDelay }, service.Century},
		{
			"broker", "retry-backoff-delays-in-seconds", "4000000000", "3153600000", func(c *Config) any { return c.Dispatch.Backoff },
			[]time.Duration{service.Century},
		},
		{"nats", "store-max", "2000000000GB", "1152921504606846976", func(c *Config) any { return c.NATS.StoreMax }, int64(1 << 60)},
	} {
		c := DefaultConfig()
		require.NoError(t, c.ReadINI([]byte("["+tt.section+"]\n"+tt.key+"="+tt.value+"\n")))
		require.Equal(t, tt.want, tt.got(c))
		require.Equal(t, []string{"[" + tt.section + "] " + tt.key + ": " + tt.value + " is more than " + tt.bound + " and counts as that"}, c.Warnings)
	}
	c := DefaultConfig()
	require.NoError(t, c.ReadINI([]byte("[broker]\nretry-backoff-delays-in-seconds=5,4000000000\n")))
	require.Equal(t, []time.Duration{5 * time.Second, service.Century}, c.Dispatch.Backoff)
}

// hashOfX is the SHA-256 of "x".
const hashOfX = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"

func TestConfigValidate(t *testing.T) {
	for _, tt := range []struct {
		flags map[string]string
		want  string
	}{
		{map[string]string{"listen": "0.0.0.0:8080"}, "[http] listener"},
		{map[string]string{"listen": ":8080"}, "[http] listener"},
		{map[string]string{"listen": "8080"}, "[http] listener"},
		{map[string]string{"gateway-auth-mode": "hmac"}, "[gateway-auth] hmac-shared-secret: it is empty"},
		{
			map[string]string{"gateway-auth-mode": "hmac", "gateway-auth-hmac-shared-secret": "not base64"},
			"[gateway-auth] hmac-shared-secret: it is not base64 (illegal base64 data at input byte 3)",
		},
		{map[string]string{"gateway-auth-mode": "hmac", "gateway-auth-hmac-shared-secret": "dGVzdA=="}, ""},
		{
			map[string]string{"admin-token": "sha256:" + hashOfX + "  -"},
			"[admin] token: behind sha256: there are 67 characters, where 64 hexadecimal digits in lower case",
		},
		{map[string]string{"admin-token": "sha256:" + strings.ToUpper(hashOfX)}, "[admin] token"},
		{map[string]string{"admin-token": "sha256:" + hashOfX}, ""},
		{map[string]string{"sync": "sometimes"}, "[nats] sync"},
		{map[string]string{"replicas": "3"}, "[nats] replicas"},
		{map[string]string{"broker-event-url": "alerts/here"}, "[broker] event-url: URL"},
		{map[string]string{"broker-event-url": "http://10.0.0.1/alerts"}, ""},
		{map[string]string{"consumer-connection-networks": "10.0.0.0"}, "networks"},
		{map[string]string{"listen": "0.0.0.0:8080", "admin-token": "x"}, ""},
		{map[string]string{"listen": "0.0.0.0:8080", "http-open": "true"}, ""},
		{map[string]string{"listen": "[::1]:8080"}, ""},
		{map[string]string{"listen": "localhost:8080"}, ""},
		{map[string]string{"sync": "2m"}, ""},
		{map[string]string{"store-max": "20GB"}, ""},
		{map[string]string{"store-max": "1e6"}, ""},
		{map[string]string{"store-max": "-1"}, `[nats] store-max: "-1"`},
		{map[string]string{"store-max": "NaN"}, `[nats] store-max: "NaN"`},
		{map[string]string{"store-max": "much"}, `[nats] store-max: "much"`},
		{map[string]string{"replicas": "3", "nats": "nats://127.0.0.1"}, ""},
		{map[string]string{"consumer-connection-networks": "10.0.0.0/8,fd00::/8"}, ""},
		{map[string]string{"consumer-connection-token-header-name": ""}, `[consumer-connection] token-header-name: "" is no name`},
		{map[string]string{"consumer-connection-token-header-name": "X Token"}, `[consumer-connection] token-header-name: "X Token" is no name`},
		{map[string]string{"consumer-connection-token-header-name": "X-Tökén"}, `[consumer-connection] token-header-name: "X-Tökén" is no name`},
		{
			map[string]string{"consumer-connection-token-header-name": "x-broker-MESSAGE-id"},
			`[consumer-connection] token-header-name: "x-broker-MESSAGE-id" is a header that`,
		},
		{
			map[string]string{"consumer-connection-token-header-name": "content-type"},
			`[consumer-connection] token-header-name: "content-type" is a header that`,
		},
		{map[string]string{"consumer-connection-token-header-name": "Content-Length"}, `[consumer-connection] token-header-name: "Content-Length"`},
		{map[string]string{"consumer-connection-token-header-name": "Host"}, `[consumer-connection] token-header-name: "Host"`},
		{map[string]string{"consumer-connection-token-header-name": "Transfer-Encoding"}, `[consumer-connection] token-header-name: "Transfer-Encoding"`},
		{map[string]string{"consumer-connection-token-header-name": "connection"}, `[consumer-connection] token-header-name: "connection"`},
		{map[string]string{"consumer-connection-token-header-name": "Webhook-Signature"}, `[consumer-connection] token-header-name: "Webhook-Signature"`},
		{map[string]string{"consumer-connection-token-header-name": "Authorization"}, ""},
		{
			map[string]string{"gateway-auth-hmac-timestamp-tolerance-seconds": "0"},
			`[gateway-auth] hmac-timestamp-tolerance-seconds: "0" is not a number of seconds from 1`,
		},
		{map[string]string{"gateway-auth-hmac-timestamp-tolerance-seconds": "1"}, ""},
	} {
		_, err := LoadConfig(Sources{Flags: tt.flags})
		if tt.want == "" {
			require.NoError(t, err, "%v", tt.flags)
		} else {
			require.ErrorContains(t, err, tt.want, "%v", tt.flags)
		}
	}
}

// A seed with values that cannot be stored or used is refused. The error names the entry and shows no token.
func TestSeedIsRefusedByName(t *testing.T) {
	const channel = "[initial-channels]\nc=C\n"
	for _, tt := range []struct{ ini, want string }{
		{"[initial-channels]\na\xffb=x\n", "line 2 is not UTF-8"},
		{channel + "[initial-consumers]\nk=http://h/\n[k]\nchannel=c\ntoken=s3cret\xff\n", "line 7 is not UTF-8"},
		{channel + "[initial-channel-tokens]\nc=ünï\n", ""},
		{channel + "[initial-channel-tokens]\nc=\" s3cret\"\n", `[initial-channel-tokens] c: the token cannot be used: it begins or ends with a space`},
		{
			"[initial-producers]\np=P\n[initial-producer-tokens]\np=s3cret\x01\n",
			`[initial-producer-tokens] p: the token cannot be used: it has a control character`,
		},
		{"[initial-producers]\na\x01b=P\n", `[initial-producers] "a\x01b": the ID cannot be used: it has a control character`},
		{
			channel + "[initial-consumers]\nk=http://h/\n[k]\nchannel=c\ntoken=s3\x7fcret\n",
			`[k] token: the token cannot be used: it has a control character`,
		},
		{"[initial-channels]\na\x01b=C\n", ""},
		{"[admin]\ntoken=\"s3cret \"\n", `[admin] token: it begins or ends with a space`},
	} {
		_, err := LoadConfig(Sources{File: writeFile(t, tt.ini)})
		if tt.want == "" {
			require.NoError(t, err, tt.ini)
			continue
		}
		require.ErrorContains(t, err, tt.want, tt.ini)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

func TestSettingNamesAreUnique(t *testing.T) {
	flags, envs := map[string]bool{}, map[string]bool{}
	for _, s := range Settings() {
		require.False(t, flags[s.Flag()], s.Flag())
		require.False(t, envs[s.Env()], s.Env())
		flags[s.Flag()], envs[s.Env()] = true, true
	}
}

func FuzzReadINI(f *testing.F) {
	f.Add([]byte(SampleConfig()))
	f.Add([]byte("[broker]\nmax-retry=\"\"\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := DefaultConfig()
		if c.ReadINI(data) == nil {
			_ = c.Validate()
			require.GreaterOrEqual(t, c.Dispatch.MaxRetry, 0)
			require.NotEmpty(t, c.Dispatch.Backoff)
		}
	})
}

// A setting of an existing server is an error with the embedded one.
func TestConfigOfTheServer(t *testing.T) {
	load := func(flags map[string]string) (*Config, error) { return LoadConfig(Sources{Flags: flags}) }
	for _, key := range []string{"creds", "domain"} {
		_, err := load(map[string]string{key: "x"})
		require.ErrorContains(t, err, "[nats] "+key+`: "x"`)
	}
	_, err := load(map[string]string{"replicas": "3"})
	require.ErrorContains(t, err, "[nats] replicas: 3")
	c, err := load(map[string]string{"nats": "nats://h", "creds": "x", "domain": "y", "replicas": "3"})
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
}

func TestStrayVariables(t *testing.T) {
	require.Equal(t,
		[]string{"environment variable JETPULL_BROKER_HTTP_LISTEN is not known and has no effect"},
		StrayVariables([]string{"HOME=/", "JETPULL_BROKER_HTTP_LISTEN=x", "JETPULL_BROKER_HTTP_LISTENER=y", "JETPULL_BROKER_LOG_MAX_BACKUPS=3"}))
}

// Without a seed in the configuration the samples of the original are created. With an admin token they are not, because the
// samples' tokens are public.
func TestSamplesWhereNothingIsSeeded(t *testing.T) {
	samples := SeedData{
		Channels:  []SeedItem{{ID: "sample-channel", Name: "Sample Channel", Token: "sample-channel-token"}},
		Producers: []SeedItem{{ID: "sample-producer", Name: "Sample Producer", Token: "sample-producer-token"}},
		Consumers: []SeedConsumer{{
			SeedItem:    SeedItem{ID: "sample-consumer", Name: "sample-consumer", Token: "sample-consumer-token"},
			CallbackURL: "http://sample-endpoint/webhook-receiver", Channel: "sample-channel", Type: Push,
		}},
	}
	for _, tt := range []struct {
		name, ini string
		flags     map[string]string
		want      SeedData
		warned    bool
	}{
		{name: "nothing", want: samples},
		{name: "a file without seeds", ini: "[broker]\nmax-retry=3\n", want: samples},
		{name: "beyond loopback", ini: "[http]\nlistener=:8080\nopen=true\n", want: samples, warned: true},
		{name: "an empty section", ini: "[initial-channels]\n"},
		{name: "another section", ini: "[initial-producers]\np=P\n", want: SeedData{Producers: []SeedItem{{ID: "p", Name: "P"}}}},
		{name: "an admin token", flags: map[string]string{"admin-token": "secret"}},
	} {
		from := Sources{Flags: tt.flags}
		if tt.ini != "" {
			from.File = writeFile(t, tt.ini)
		}
		c, err := LoadConfig(from)
		require.NoError(t, err, tt.name)
		require.Equal(t, tt.want, c.Seed, tt.name)
		require.Equal(t, tt.warned, strings.Contains(strings.Join(c.Warnings, "\n"), "tokens that everybody knows"), tt.name)
	}
}
