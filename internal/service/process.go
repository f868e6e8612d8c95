package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/systems"
)

// Closers collects the functions that release the resources of a process that has started, or is starting.
type Closers struct{ all []func() }

// Add adds functions for Close. Close calls later ones first.
func (c *Closers) Add(closers ...func()) { c.all = append(c.all, closers...) }

// Close calls the functions in reverse order.
func (c *Closers) Close() {
	for i := len(c.all) - 1; i >= 0; i-- {
		c.all[i]()
	}
	c.all = nil
}

// Loopback reports whether only this machine can reach a listener.
func Loopback(listener string) (bool, error) {
	host, _, err := net.SplitHostPort(listener)
	if err != nil {
		return false, fmt.Errorf("[http] listener: %q is not host:port, such as 127.0.0.1:8080", listener)
	}
	if host == "localhost" {
		return true, nil
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback(), nil
}

// CheckEmbedded refuses replicas, and the settings for an existing server in existing, if there is no such server.
func CheckEmbedded(replicas int, existing map[string]string) error {
	var errs []error
	if replicas > 1 {
		errs = append(errs, fmt.Errorf("[nats] replicas: %d needs a cluster: give its url, or use 1", replicas))
	}
	for key, value := range existing {
		if value != "" {
			errs = append(errs, fmt.Errorf("[nats] %s: %q is for an existing server: give its url", key, value))
		}
	}
	return errors.Join(errs...)
}

// reconnectWait is the minimum wait before an attempt to reconnect, and the maximum jitter.
const reconnectWait = 250 * time.Millisecond

// NATSOptions returns the options for a connection that lasts as long as the process.
func NATSOptions(name string, log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, reconnectWait),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			log.Warn("NATS connection", "subject", subject, "error", err)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("NATS connection lost, reconnecting", "error", err)
			}
		}),
	}
}

// Connect connects to an existing server. Without creds, it uses no file of credentials.
func Connect(url, creds string, opts ...nats.Option) (*nats.Conn, error) {
	if creds != "" {
		opts = append(opts, nats.UserCredentials(creds))
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", mask.URL(url), mask.Error(err, url))
	}
	return nc, nil
}

// CheckStore refuses the store of an embedded server that has streams but none of the system. Such a store belongs to another program, such as the
// relay.
func CheckStore(ctx context.Context, js jetstream.JetStream, dir, system string) error {
	foreign, owner := "", ""
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		of := systems.OfStream(info.Config.Name, info.Config.Subjects)
		if of == system {
			return nil
		}
		if foreign == "" || of != "" {
			foreign, owner = info.Config.Name, of
		}
	}
	if err := streams.Err(); err != nil {
		return fmt.Errorf("[nats] store-dir %s: list its streams: %w", dir, err)
	}
	if foreign == "" {
		return nil
	}
	who := "another program"
	if owner != "" {
		who = "a " + owner
	}
	return fmt.Errorf("[nats] store-dir %s: it is the store of %s: it has the stream %s; give the %s a folder of its own", dir, who, foreign, system)
}
