package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The configuration files that webhook-broker 0.2.3 ships, as keys and values. Keys of its database and seeds are shortened.
var originals = []struct {
	name     string
	ini      string
	listener string   // an address other than loopback, which needs a token or to be open
	warned   []string // parts of warnings, other than those about ignored keys
	refused  string   // what the broker refuses unless nothing is pruned
	check    func(t *testing.T, c *Config)
}{
	{
		name:     "config/test-webhook-broker.cfg",
		listener: ":7080",
		ini: `[rdbms]
dialect=sqlite3
connection-url=database.sqlite3
connxn-max-idle-time-seconds=10
connxn-max-lifetime-seconds=10
max-idle-connxns=300
max-open-connxns=1000
[http]
listener=:7080
read-timeout=2401
write-timeout=2401
[log]
filename=/var/log/webhook-broker.log
max-file-size-in-mb=20
max-backups=30
max-age-in-days=280
compress-backups=false
log-level=error
[broker]
max-message-queue-size=20000
max-workers=250
priority-dispatcher-enabled=true
retrigger-base-endpoint=http://localhost:7080
max-retry=7
rational-delay-in-seconds=30
retry-backoff-delays-in-seconds=15,30,60,120
recovery-workers-enabled=false
[consumer-connection]
token-header-name=X-Test-Consumer-Token
user-agent=Test User Agent
connection-timeout-in-seconds=300
[prune]
export-node-name=test-node
message-retention-days=4
remote-export-destination=s3
remote-export-url=s3://test-bucket/test-node
[initial-channels]
test-channel=Test Channel
test-channel2=Test Channel 2
[initial-producers]
test-producer=Test Producer
[initial-consumers]
test-consumer=http://127.0.0.1/webhook-receiver
test-consumer6=http://127.0.0.1/webhook-receiver3
test-consumer5=http://127.0.0.1/webhook-receiver2
test-consumer1=./relative-url
test-consumer2=not-a-url
test-consumer4=http://127.0.0.1/webhook-receiver1
test-consumer-pull=http://127.0.0.1/webhook-receiver
test-consumer-wrong-type=http://127.0.0.1/webhook-receiver
[initial-channel-tokens]
test-channel=test-channel-token
[initial-producer-tokens]
test-producer=test-producer-token
[test-consumer]
token=test-consumer-token
channel=test-channel
[test-consumer1]
token=test-consumer-token1
channel=test-channel
[test-consumer2]
token=test-consumer-token2
channel=test-channel
[test-consumer4]
channel=test-channel
[test-consumer5]
channel=non-existing-channel
[test-consumer-pull]
token=test-consumer-token2
channel=test-channel
type=pull
[test-consumer-wrong-type]
token=test-consumer-token2
channel=test-channel
type=wrong
`,
		refused: `[prune] remote-export-destination "s3": `,
		check: func(t *testing.T, c *Config) {
			require.Equal(t, 250, c.Dispatch.MaxWorkers)
			require.Equal(t, 2401*time.Second, c.HTTP.ReadTimeout)
			require.Len(t, c.Seed.Consumers, 3)
			require.Len(t, c.Seed.Skipped, 5)
		},
	},
	{name: "config/webhook-broker.cfg", listener: ":7050", ini: "[http]\nlistener=:7050\n"},
	{name: "storage/webhook-broker.cfg", listener: ":7040", ini: "[http]\nlistener=:7040\n"},
	{name: "controllers/controller-test-config.cfg", listener: ":17654", ini: "[http]\nlistener=:17654\n"},
	{
		name: "webhook-broker-dc.cfg",
		ini: `[rdbms]
dialect=mysql
connection-url=user:password@tcp(mysql:3306)/webhook-broker?charset=utf8mb4&parseTime=true
[broker]
max-message-queue-size=10000000
max-workers=250
retry-backoff-delays-in-seconds=1
rational-delay-in-seconds=1
[consumer-connection]
connection-timeout-in-seconds=30
[log]
log-level=error
`,
		warned: []string{queueIgnored},
	},
	{
		name:     "webhook-broker-integration-test-hmac.cfg",
		listener: ":8082",
		ini: `[http]
listener=:8082
[broker]
max-message-queue-size=10000000
max-workers=250
retry-backoff-delays-in-seconds=1
rational-delay-in-seconds=1
retrigger-base-endpoint=http://localhost:8082
[consumer-connection]
connection-timeout-in-seconds=10
[log]
log-level=error
[gateway-auth]
mode=hmac
hmac-shared-secret=dGVzdC1obWFjLXNlY3JldC1mb3ItaW50ZWdyYXRpb24=
hmac-timestamp-tolerance-seconds=300
auth-exempt-paths=/_status,/metrics,/debug/pprof/
[initial-channels]
hmac-test-channel=HMAC Test Channel
[initial-producers]
hmac-test-producer=HMAC Test Producer
[initial-channel-tokens]
hmac-test-channel=hmac-test-channel-token
[initial-producer-tokens]
hmac-test-producer=hmac-test-producer-token
`,
		warned: []string{queueIgnored},
		check: func(t *testing.T, c *Config) {
			gateway, err := c.Gateway.check()
			require.NoError(t, err)
			require.Equal(t, "test-hmac-secret-for-integration", string(gateway.Key))
		},
	},
	{
		name: "webhook-broker-integration-test.cfg, webhook-broker-local-itest.cfg",
		ini: `[broker]
max-message-queue-size=10000000
max-workers=250
retry-backoff-delays-in-seconds=1
rational-delay-in-seconds=1
[dlq]
summary-update-interval-seconds=5
[prune]
export-node-name=w7b6_intg_test
message-retention-days=1
max-archive-file-size-in-mb=1
export-path=/files/export
`,
		warned: []string{queueIgnored},
		check:  func(t *testing.T, c *Config) { require.Equal(t, "/files/export", c.Prune.ExportPath) },
	},
	{
		name:     "webhook-broker-local-itest-pruner.cfg",
		listener: ":8081",
		ini: `[http]
listener=:8081
[broker]
max-message-queue-size=10000000
max-workers=10000
[prune]
message-retention-days=1
export-path=export
`,
		warned: []string{queueIgnored},
		check: func(t *testing.T, c *Config) {
			require.Equal(t, 10000, c.Dispatch.MaxWorkers)
		},
	},
}

const queueIgnored = "[broker] max-message-queue-size is accepted for compatibility and has no effect: jobs are not read ahead: each is taken " +
	"from the index when its callback begins"

// The broker starts with every configuration that the original ships, and logs the differences. It does not delete messages without the archive
// that one of them orders.
func TestConfigurationsOfTheOriginalStart(t *testing.T) {
	for _, o := range originals {
		t.Run(o.name, func(t *testing.T) {
			file := writeFile(t, o.ini)
			if o.listener != "" {
				_, err := LoadConfig(Sources{File: file})
				require.ErrorContains(t, err, "[http] listener: "+o.listener+" can be reached from other machines")
				require.ErrorContains(t, err, `set an admin token (--admin-token, or "token" under [admin])`)
				require.ErrorContains(t, err, `--http-open true ("open" under [http])`)
			}
			var c *Config
			for _, safe := range []map[string]string{{"admin-token": "secret"}, {"http-open": "true"}} {
				var err error
				if o.refused != "" {
					_, err = LoadConfig(Sources{File: file, Flags: safe})
					require.ErrorContains(t, err, o.refused)
					safe["prune-message-retention-days"] = "0"
				}
				c, err = LoadConfig(Sources{File: file, Flags: safe})
				require.NoError(t, err)
				if o.listener != "" {
					require.Equal(t, o.listener, c.HTTP.Listener)
				}
				for _, warning := range o.warned {
					require.True(t, slices.Contains(c.Warnings, warning), "%q in %q", warning, c.Warnings)
				}
				if o.check != nil {
					o.check(t, c)
				}
			}
			// The address and the folders are the test's own.
			c.HTTP.Listener, c.NATS.StoreDir, c.Prune.ExportPath = "127.0.0.1:0", t.TempDir(), t.TempDir()
			n := startNode(t, c)
			for _, path := range []string{"/healthz", "/readyz"} {
				code, body, _ := call(t, n, "GET", path, nil, "")
				require.Equal(t, 200, code, body)
			}
		})
	}
}
