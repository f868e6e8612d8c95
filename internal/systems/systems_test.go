package systems

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOfStream(t *testing.T) {
	for name, tt := range map[string]struct{ subject, want string }{
		"broker_messages":          {"broker.m.>", "broker"},
		"eu_jobs":                  {"eu.j.>", "broker"},
		"broker_ticks":             {"broker.t", "broker"},
		"relay_from_sender":        {"relay.from_sender.>", "relay"},
		"a-b_failed_messages":      {"a-b.failed_messages.>", "relay"},
		"KV_broker_registry":       {"$KV.broker_registry.>", "broker"},
		"KV_relay_receiver_config": {"$KV.relay_receiver_config.>", "relay"},
		"KV_x_messages":            {"$KV.x_messages.>", "relay"},
		"KV_partition-orders":      {"$KV.partition-orders.>", "partition"},
		// Streams of applications.
		"shop_messages": {"shop.>", ""},
		"shop_jobs":     {"shop.jobs.>", ""},
		"broker":        {"broker.m.>", ""},
		"KV_settings":   {"$KV.settings.>", ""},
		"registry":      {"registry.>", ""},
	} {
		require.Equal(t, tt.want, OfStream(name, []string{"other", tt.subject}), name)
	}
}

func TestOfSubject(t *testing.T) {
	for subject, want := range map[string]string{
		"$KV.broker_registry.c.orders": "broker", "$KV.relay_receiver_config.r": "relay", "$KV.partition-a.member.b": "partition",
		"$KV.settings.a": "", "broker.m.a.b": "", "$KV.": "", "": "",
	} {
		require.Equal(t, want, OfSubject(subject), subject)
	}
}
