package service

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// A refusal is reported for a minute, without the names that a subject has.
func TestPermissionsThatAreMissing(t *testing.T) {
	var p Permissions
	var o nats.Options
	handled := 0
	o.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) { handled++ }
	require.NoError(t, p.Watch(&o))
	require.NoError(t, p.Err())
	now := time.Now()
	for _, what := range []string{
		`Permissions Violation for Publish to "broker.m.secret-channel.1"`,
		`Permissions Violation for Publish to "broker.m.secret-channel.2"`,
		`Permissions Violation for Subscription to "_INBOX.x.*" using queue "secret"`,
		`Permissions Violation for Publish to "$JS.API.CONSUMER.CREATE.broker_jobs.c.broker.secret.x"`,
	} {
		o.AsyncErrorCB(nil, nil, fmt.Errorf("%w: %s", nats.ErrPermissionViolation, what))
	}
	o.AsyncErrorCB(nil, nil, errors.New(`Publish to "other"`))
	o.AsyncErrorCB(nil, nil, nil)
	require.Equal(t, 6, handled)
	const all = `Publish to $JS.API.CONSUMER.CREATE.broker_jobs.c.>, Publish to broker.m.>, Subscription to _INBOX.x.>`
	require.EqualError(t, p.Err(), "the user of the NATS server lacks a permission: "+all)
	require.Error(t, p.err(now.Add(refusedFor)))
	require.NoError(t, p.err(now.Add(2*refusedFor)))
}
