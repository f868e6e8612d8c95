package broker

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/httpapi"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/webhook"
)

// Config is the configuration of a broker process. Settings gives each of its fields a name in the INI file, on the command line
// and in the environment.
type Config struct {
	HTTP       HTTPConfig
	Log        LogConfig
	Dispatch   DispatchConfig
	Breaker    BreakerConfig
	Connection ConnectionConfig
	Scheduler  SchedulerConfig
	Prune      PruneConfig
	Gateway    GatewayConfig
	Admin      AdminConfig
	NATS       NATSConfig
	Seed       SeedData

	// Warnings are logged at the start: settings that were accepted and have no effect.
	Warnings []string
	// seeded says that a file has a seed, which may be empty.
	seeded bool
}

// HTTPConfig configures the listener.
type HTTPConfig struct {
	Listener     string
	ReadTimeout  time.Duration
	WriteTimeout time.Duration
	// PerAddress is how many connections an address may have. 0 means any number.
	PerAddress   int
	MaxBodyBytes int
	// TLSCert and TLSKey are files. If both are empty, there is no TLS.
	TLSCert, TLSKey string
	// Open allows an address other than loopback without an admin token.
	Open bool
	// OpenMetrics serves the metrics without the admin token.
	OpenMetrics bool
}

// LogConfig configures the log.
type LogConfig struct {
	Filename string
	Level    string
}

// [Settings] documents each field of these, by section and key.
type (
	// DispatchConfig configures jobs and their retries.
	DispatchConfig = work.DispatchRules
	// BreakerConfig configures the handling of consumers whose callbacks fail.
	BreakerConfig = work.BreakerRules
	// ConnectionConfig configures the callbacks of push consumers.
	ConnectionConfig = work.CallbackRules
	// PruneConfig configures the pruning of finished messages.
	PruneConfig = work.PruneRules
)

// SchedulerConfig configures scheduled messages.
type SchedulerConfig struct {
	MinDelay time.Duration
}

// GatewayConfig configures the signatures of requests.
type GatewayConfig struct {
	// Mode is none or hmac.
	Mode string
	// Scheme is v1 or v2. v1, the original's, covers time and body. v2 also covers method, path, query and a nonce. With v1 the
	// broker accepts requests of both schemes. Empty means v1.
	Scheme string
	// Secret is the key of the signatures in base64.
	Secret    string
	Tolerance time.Duration
	Exempt    []string
}

// AdminConfig configures access to the registry.
type AdminConfig struct {
	// Token may be a hash: sha256: and 64 hexadecimal digits.
	Token string
	// HashTokens stores the tokens of producers and channels as hashes.
	HashTokens bool
	// MaxFailed is how many wrong admin tokens are accepted from an address per minute. 0 means any number.
	MaxFailed int
}

// NATSConfig configures the NATS server.
type NATSConfig struct {
	// URL of an existing server. Empty means an embedded server.
	URL   string
	Creds string
	// StartWait is how long a start waits for the servers without any progress. 0 means forever.
	StartWait time.Duration
	// Domain is the JetStream domain. Empty means the server's own.
	Domain   string
	StoreDir string
	Name     string
	Replicas int
	// StoreMax is the most bytes that messages may take on the embedded server. 0 means the size of the disk, less a reserve.
	StoreMax int64
	// Sync is always, each, or the interval at which the embedded server syncs to disk.
	Sync string
}

// check returns the gateway that checks signatures, nil if requests need none. Its error does not show the secret.
func (c *GatewayConfig) check() (*httpapi.Gateway, error) {
	if c.Mode != "hmac" {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(c.Secret)
	if err != nil {
		return nil, fmt.Errorf("[gateway-auth] hmac-shared-secret: it is not base64 (%w): encode the key that clients sign with, such as with openssl base64", err)
	}
	if len(key) == 0 {
		return nil, errors.New("[gateway-auth] hmac-shared-secret: it is empty; mode hmac needs a key in base64")
	}
	return &httpapi.Gateway{Key: key, Scheme: c.Scheme, Tolerance: c.Tolerance, Exempt: c.Exempt}, nil
}

// The words for Sync: they name who syncs writes of the embedded server.
const (
	syncGroups = "always" // the broker, before it answers, once for all waiting writes
	syncEach   = "each"   // the server, each write
)

// parseSync parses Sync: a word, or the interval at which the server syncs.
func (c *NATSConfig) parseSync() (word string, every time.Duration, err error) {
	return service.ParseSync(c.Sync, syncGroups, syncEach)
}

// Validate checks rules that span several settings.
func (c *Config) Validate() error {
	var errs []error
	named := func(name string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	_, gateway := c.Gateway.check()
	_, _, sync := c.NATS.parseSync()
	_, policy := c.policy()
	errs = append(errs, gateway, sync, policy, c.Seed.validate(),
		service.CheckListener(c.HTTP.Listener, "change channels and read messages", c.Admin.Token, c.HTTP.Open))
	if (c.HTTP.TLSCert == "") != (c.HTTP.TLSKey == "") {
		errs = append(errs, fmt.Errorf("[http] tls-cert %q and tls-key %q: give both, or neither", c.HTTP.TLSCert, c.HTTP.TLSKey))
	}
	if rest, ok := strings.CutPrefix(c.Admin.Token, domain.HashPrefix); ok && !domain.Hashed(c.Admin.Token) {
		errs = append(errs, fmt.Errorf("[admin] token: behind %s there are %d characters, where 64 hexadecimal digits in lower case are the hash of a token: printf %%s \"$TOKEN\" | sha256sum | cut -d' ' -f1", domain.HashPrefix, len(rest)))
	}
	named("[admin] token", domain.CheckSent(c.Admin.Token))
	if c.NATS.URL == "" {
		errs = append(errs, service.CheckEmbedded(c.NATS.Replicas, map[string]string{"creds": c.NATS.Creds, "domain": c.NATS.Domain}))
	}
	if c.Breaker.EventURL != "" {
		named("[broker] event-url", webhook.CheckURL(c.Breaker.EventURL))
	}
	named("[consumer-connection] token-header-name", work.CheckHeaderName(c.Connection.TokenHeader))
	return errors.Join(errs...)
}

// notice returns the log line about finished messages.
func notice(retention time.Duration) (slog.Level, string) {
	if retention == 0 {
		return slog.LevelWarn, "finished messages are kept for ever: memory and disk grow; set [prune] message-retention-days"
	}
	return slog.LevelInfo, fmt.Sprintf("finished messages are deleted %v days after their broadcast; [prune] message-retention-days changes that", retention.Hours()/24)
}

// loopback reports whether the listener is reachable from this machine only.
func (c *HTTPConfig) loopback() bool {
	loopback, err := service.Loopback(c.Listener)
	return err == nil && loopback
}

// policy returns the networks that callbacks may reach. With networks = auto it depends on the listener: behind a loopback
// listener consumers can be registered only from this machine.
func (c *Config) policy() (webhook.Policy, error) {
	anywhere, allowed, err := service.ParseNetworks(c.Connection.Networks, c.HTTP.Listener)
	if err != nil {
		return webhook.Policy{}, fmt.Errorf("[consumer-connection] %w", err)
	}
	return webhook.Policy{Any: anywhere, Allowed: allowed}, nil
}
