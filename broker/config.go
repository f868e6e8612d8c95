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
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/natsembed"
)

// Config is the configuration of a broker process. [Settings] lists the name of each field in the INI file, on the command line and in the
// environment, with its default.
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

	// Warnings name settings that were accepted but have no effect. Start logs them.
	Warnings []string
	// seeded reports whether a file has a seed, which may be empty.
	seeded bool
	// remoteExport is the remote destination for pruned messages that a file of the original configures.
	remoteExport string
}

// HTTPConfig configures the listener. [Settings] documents its fields, in section http.
type HTTPConfig struct {
	service.HTTP
	ReadTimeout  time.Duration // the time limit for reading a request; 240 s by default; 0 means none
	WriteTimeout time.Duration // the time limit for writing a response, including a long poll; 240 s by default; 0 means none
	// TLSCert and TLSKey are PEM files. If both are empty, the listener does not use TLS.
	TLSCert, TLSKey string
}

// LogConfig configures the log. [Settings] documents its fields, in section log.
type LogConfig = service.Log

type (
	// DispatchConfig configures jobs and their retries. [Settings] documents its fields, in section broker.
	DispatchConfig = work.DispatchRules
	// BreakerConfig configures the handling of consumers whose callbacks fail. [Settings] documents its fields, in section broker.
	BreakerConfig = work.BreakerRules
	// ConnectionConfig configures the callbacks of push consumers. [Settings] documents its fields, in section consumer-connection.
	ConnectionConfig = work.CallbackRules
	// PruneConfig configures the pruning of finished messages. [Settings] documents its fields, in section prune.
	PruneConfig = work.PruneRules
)

// SchedulerConfig configures scheduled messages.
type SchedulerConfig struct {
	MinDelay time.Duration // the minimum time from now to the scheduled time; 2 minutes by default
}

// GatewayConfig configures the signatures of requests.
type GatewayConfig struct {
	// Mode is none or hmac. With none, the default, requests need no signature.
	Mode string
	// Scheme is v1 or v2. v1 is the scheme of the original webhook-broker and covers time and body. v2 also covers method, path, query and a nonce.
	// With v1, the broker accepts both schemes. Empty means v1.
	Scheme string
	// Secret is the signing key, in base64.
	Secret    string
	Tolerance time.Duration // the maximum difference between a signature's time and the clock, at least 1 s; 5 minutes by default
	Exempt    []string      // prefixes of paths that need no signature; default: /_status, /metrics; /healthz and /readyz never need one
}

// AdminConfig configures access to the registry. [Settings] documents its fields, in section admin.
type AdminConfig struct {
	service.Admin // Token may be a hash: sha256: and 64 hexadecimal digits
	// HashTokens stores the tokens of producers and channels as hashes.
	HashTokens bool
}

// NATSConfig configures the NATS server. [Settings] documents its fields, in section nats.
type NATSConfig struct {
	service.NATS
	// StartWait is how long a start waits for the servers without progress before it fails. 0 means no limit. The default is 2 minutes.
	StartWait time.Duration
	// Domain is the JetStream domain. Empty means the server's own.
	Domain string
	// StoreMax is the maximum number of bytes in the embedded server's store. 0 means the size of the disk, less a reserve of a twentieth.
	StoreMax int64
}

// check returns the gateway that checks signatures. It returns nil if requests need none. Its error does not show the secret.
func (c *GatewayConfig) check() (*httpapi.Gateway, error) {
	if c.Mode != "hmac" {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(c.Secret)
	if err != nil {
		return nil, fmt.Errorf("[gateway-auth] hmac-shared-secret: it is not base64 (%w): encode the key that clients sign with, such as with openssl "+
			"base64", err)
	}
	if len(key) == 0 {
		return nil, errors.New("[gateway-auth] hmac-shared-secret: it is empty; mode hmac needs a key in base64")
	}
	return &httpapi.Gateway{Key: key, Scheme: c.Scheme, Tolerance: c.Tolerance, Exempt: c.Exempt}, nil
}

// Validate checks the rules that concern several settings. [LoadConfig] and [Start] call it.
func (c *Config) Validate() error {
	_, gateway := c.Gateway.check()
	_, sync := natsembed.ParseSync(c.NATS.Sync)
	_, policy := c.Connection.Policy("consumer-connection", c.HTTP.Listener)
	errs := []error{
		gateway, service.Named("[nats] sync", sync), policy, c.Seed.validate(), c.HTTP.Check("change channels and read messages", c.Admin.Token),
		service.Named("[admin] token", domain.CheckSent(c.Admin.Token)),
		service.Named("[consumer-connection] token-header-name", work.CheckHeaderName(c.Connection.TokenHeader)),
	}
	if (c.HTTP.TLSCert == "") != (c.HTTP.TLSKey == "") {
		errs = append(errs, fmt.Errorf("[http] tls-cert %q and tls-key %q: give both, or neither", c.HTTP.TLSCert, c.HTTP.TLSKey))
	}
	if rest, ok := strings.CutPrefix(c.Admin.Token, domain.HashPrefix); ok && !domain.Hashed(c.Admin.Token) {
		errs = append(errs, fmt.Errorf("[admin] token: behind %s there are %d characters, where 64 hexadecimal digits in lower case are the hash of a "+
			"token: printf %%s \"$TOKEN\" | sha256sum | cut -d' ' -f1", domain.HashPrefix, len(rest)))
	}
	if c.remoteExport != "" && c.Prune.Retention > 0 {
		errs = append(errs, fmt.Errorf("[prune] remote-export-destination %q: this broker would delete messages without that archive: remove the key, and "+
			"give a folder as export-path, from which you copy the files; or set message-retention-days to 0, with which nothing is deleted", c.remoteExport))
	}
	if c.NATS.URL == "" {
		errs = append(errs, service.CheckEmbedded(c.NATS.Replicas, map[string]string{"creds": c.NATS.Creds, "domain": c.NATS.Domain}))
	}
	if c.Breaker.EventURL != "" {
		errs = append(errs, service.Named("[broker] event-url", webhook.CheckURL(c.Breaker.EventURL)))
	}
	return errors.Join(errs...)
}

func notice(retention time.Duration) (slog.Level, string) {
	if retention == 0 {
		return slog.LevelWarn, "finished messages are kept for ever: memory and disk grow; set [prune] message-retention-days"
	}
	return slog.LevelInfo, fmt.Sprintf("finished messages are deleted %v days after their broadcast; [prune] message-retention-days changes that",
		retention.Hours()/24)
}
