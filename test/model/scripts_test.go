package model_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/test/servertest"
)

func explicit(change ...func(*jetstream.ConsumerConfig)) jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy}
	for _, f := range change {
		f(&cfg)
	}
	return cfg
}

// scripts that need no time, and may run with replicas too.
func untimed() []script {
	pinned := explicit(func(c *jetstream.ConsumerConfig) {
		c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyPinned, []string{"g"}
	})
	return []script{
		{name: "no-wait", cfg: explicit(), steps: list(
			sub("a"), pull("a", `{"batch":5,"no_wait":true}`),
			pub(3), pull("a", `{"batch":5,"no_wait":true}`), pull("a", `{"batch":5,"no_wait":true}`),
			pub(2), pull("a", `{"batch":2,"no_wait":true}`),
		)},
		{name: "plain pulls share", cfg: explicit(), steps: list(
			sub("a"), sub("b"), pull("a", `{"batch":3,"expires":60000000000}`), pull("b", `{"batch":2,"expires":60000000000}`),
			pub(7), pull("a", `{"batch":1}`), pull("a", ""), pull("b", "2"), pull("b", "nonsense"), pub(3),
		)},
		{name: "requests pending", cfg: explicit(), steps: list(
			sub("a"), sub("b"), pull("a", `{"batch":5,"expires":60000000000,"group":"x"}`), pub(1),
			pull("b", `{"batch":1,"no_wait":true}`), pub(1), unsub("a"), pull("b", `{"batch":1,"no_wait":true}`), pub(3),
			pull("b", `{"batch":10,"no_wait":true,"expires":60000000000}`),
		)},
		{name: "one-shot", cfg: explicit(), steps: list(
			sub("a"), pull("a", `{"batch":5,"no_wait":true,"expires":60000000000}`), pub(2),
			pull("a", `{"batch":5,"no_wait":true,"expires":60000000000}`),
		)},
		{name: "max bytes", cfg: explicit(), steps: list(
			sub("a"), pubOf(4, 100), pull("a", `{"batch":10,"max_bytes":400,"no_wait":true}`),
			pull("a", `{"batch":1,"max_bytes":1000}`), pull("a", `{"batch":1,"max_bytes":50}`),
			pull("a", `{"batch":10,"max_bytes":100000,"expires":60000000000}`), pubOf(1, 200),
		)},
		{name: "max waiting", cfg: explicit(func(c *jetstream.ConsumerConfig) { c.MaxWaiting = 2 }), steps: list(
			sub("a"), sub("b"), pull("a", `{"expires":60000000000}`), pull("a", `{"expires":60000000000}`), pull("b", `{"expires":60000000000}`),
			pull("b", `{"expires":60000000000,"idle_heartbeat":20000000000}`), pull("b", `{"no_wait":true}`),
			pull("b", `{"no_wait":true,"expires":60000000000}`), pub(3),
		)},
		{name: "limits", cfg: explicit(func(c *jetstream.ConsumerConfig) {
			c.MaxRequestBatch, c.MaxRequestExpires, c.MaxRequestMaxBytes = 10, time.Minute, 1000
		}), steps: list(
			sub("a"), pull("a", `{"batch":11}`), pull("a", `{"expires":61000000000}`), pull("a", `{"max_bytes":1001}`),
			pull("a", `{"batch":}`), pull("a", `{"batch":"x"}`), pull("a", `{"idle_heartbeat":1000000}`),
			pull("a", `{"expires":1000000000,"idle_heartbeat":600000000}`),
			pull("a", `{"min_pending":1}`), pull("a", `{"id":"x"}`), pull("a", `{"priority":10}`), pull("a", `{"priority":-1}`),
			pull("a", `{"batch":10,"priority":9,"group":"whatever"}`), pub(1),
		)},
		{name: "max ack pending", cfg: explicit(func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 2 }), steps: list(
			sub("a"), pub(5), pull("a", `{"batch":5,"no_wait":true}`), ack("a", 0, "+ACK"), ack("a", 1, "-NAK"),
			pull("a", `{"batch":5,"expires":60000000000}`), ack("a", 2, "+TERM because"), ack("a", 3, ""), ack("a", 4, "+OK"),
		)},
		{name: "limits change", cfg: explicit(func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 2 }), steps: list(
			sub("a"), pub(6), pull("a", `{"batch":9,"expires":60000000000}`), update(`{"max_ack_pending":4}`), ack("a", 0, "+ACK"),
			update(`{"max_ack_pending":2,"max_batch":3,"max_expires":30000000000}`), pull("a", `{"batch":4}`), pull("a", `{"expires":60000000000}`),
			ack("a", 1, "+ACK"), ack("a", 2, "-NAK"), update(`{"max_ack_pending":2,"max_deliver":2}`), ack("a", 5, "-NAK"), ack("a", 3, "+ACK"),
		)},
		{name: "acks", cfg: explicit(), steps: list(
			sub("a"), sub("b"), pub(6), pull("a", `{"batch":4}`), confirm("a", 1, "+ACK"), confirm("a", 1, "+ACK"), confirm("a", 0, "+TERM"),
			confirm("a", 2, "+WPI"), confirm("a", 2, "-NAK"), confirm("a", 3, "nonsense"), confirm("a", 3, "+ACK"), pull("b", `{"batch":2}`),
			confirm("a", 3, "-NAK"), confirm("b", 0, "+ACK"), ack("b", 1, "-NAK nonsense"), confirm("b", 1, "+ACK"), pull("a", "5"),
		)},
		{name: "ack all", cfg: explicit(func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }), steps: list(
			sub("a"), pub(8), pull("a", "6"), confirm("a", 2, "+ACK"), confirm("a", 1, "+ACK"), ack("a", 4, "-NAK"), pull("a", "1"),
			confirm("a", 5, "+TERM"), ack("a", 3, "-NAK"), pull("a", "5"), confirm("a", 7, "+ACK"),
		)},
		{name: "ack none", cfg: explicit(func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckNonePolicy }), steps: list(
			sub("a"), pub(3), pull("a", `{"batch":2}`), confirm("a", 0, "+ACK"), pull("a", `{"batch":1}`), pull("a", `{"batch":5,"no_wait":true}`),
		)},
		{name: "max deliver", cfg: explicit(func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 2 }), steps: list(
			sub("a"), pub(2), pull("a", "2"), ack("a", 0, "-NAK"), pull("a", "1"), ack("a", 2, "-NAK"), pull("a", "1"), ack("a", 1, "+ACK"), pub(1),
		)},
		{name: "interest", cfg: explicit(), steps: list(
			sub("a"), sub("b"), pull("a", `{"batch":2,"expires":60000000000}`), pull("b", `{"batch":2,"expires":60000000000}`),
			unsub("a"), pub(3), sub("a"), pull("a", `{"batch":1,"expires":60000000000}`), remove(), pull("a", `{"batch":1}`),
		)},
		{name: "filter", cfg: explicit(func(c *jetstream.ConsumerConfig) { c.FilterSubjects = []string{"*.y", "S.>"} }), steps: list(
			sub("a"), pub(2), pull("a", `{"no_wait":true}`),
		)},
		{name: "overflow", cfg: explicit(func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"g", "h"}
		}), steps: list(
			sub("a"), sub("b"), pull("a", `{"group":"g","min_pending":3,"batch":2,"expires":60000000000}`), pub(4),
			pull("a", `{"group":"h","min_ack_pending":3,"batch":5,"expires":60000000000}`),
			pull("b", `{"group":"g","batch":2,"expires":60000000000}`), pub(3), pull("b", `{"group":"none"}`), pull("b", "{}"), pull("b", "1"),
			pull("b", `{"group":"g","id":"x"}`), ack("a", 0, "+ACK"), ack("a", 1, "+ACK"), ack("b", 0, "+ACK"), pub(2),
			pull("b", `{"group":"g","min_pending":1,"no_wait":true}`),
		)},
		{name: "prioritized", cfg: explicit(func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyPrioritized, []string{"g"}
		}), steps: list(
			sub("a"), sub("b"), sub("c"), pull("c", `{"group":"g","priority":5,"batch":2,"expires":60000000000}`),
			pull("a", `{"group":"g","batch":2,"expires":60000000000}`), pull("b", `{"group":"g","priority":5,"batch":2,"expires":60000000000}`),
			pull("a", `{"group":"g","priority":1,"batch":1,"expires":60000000000}`), pub(8), pull("c", "1"), pub(1),
		)},
		{name: "pins", cfg: pinned, steps: list(
			sub("a"), sub("b"), pull("a", `{"group":"g","batch":1,"expires":60000000000}`), pub(1),
			pull("b", `{"group":"g","batch":2,"expires":60000000000}`), pub(1), pull("a", `{"group":"g","id":"PIN","batch":1,"expires":60000000000}`),
			pull("b", `{"group":"g","id":"wrong"}`), pull("b", `{"id":"wrong"}`), unpin("g"), pub(3),
			pull("a", `{"group":"g","id":"PIN"}`), pull("b", `{"group":"g","id":"PIN","batch":9,"no_wait":true}`),
			unpin("g"), pull("b", `{"group":"g","id":"PIN","expires":60000000000}`), pub(1), pull("a", "1"),
		)},
		{name: "pin and max bytes", cfg: pinned, steps: list(
			sub("a"), sub("b"), pull("a", `{"group":"g","max_bytes":10,"expires":60000000000}`), pull("b", `{"group":"g","expires":60000000000}`), pub(2),
			pull("b", `{"group":"g","id":"PIN","max_bytes":10,"expires":60000000000}`), pull("b", `{"group":"g","id":"PIN","max_bytes":5000,"batch":1}`),
		)},
		{name: "no-wait and redelivery", cfg: explicit(), steps: list(
			sub("a"), pub(2), pull("a", "2"), ack("a", 0, "-NAK"), pull("a", `{"batch":3,"no_wait":true}`), ack("a", 1, "-NAK"), ack("a", 2, "-NAK"),
			pull("a", `{"batch":1,"no_wait":true}`), pull("a", `{"batch":2,"no_wait":true,"expires":60000000000}`),
		)},
		{name: "max bytes used up exactly", cfg: explicit(), steps: list(
			sub("a"), pub(1), pull("a", "1"), pull("a", `{"batch":5,"max_bytes":SIZE,"expires":60000000000}`), pub(2),
			pull("a", `{"batch":1,"max_bytes":SIZE}`), pub(1), pull("a", `{"batch":2,"max_bytes":SIZE,"no_wait":true}`),
		)},
		{name: "redelivery that nobody takes", cfg: explicit(func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"g"}
		}), steps: list(
			sub("a"), sub("b"), pub(1), pull("a", "1"), pull("b", `{"group":"g","min_pending":5,"expires":60000000000}`), ack("a", 0, "-NAK"),
			pub(1), pull("a", `{"group":"g","batch":2,"no_wait":true}`),
		)},
		{name: "update", cfg: explicit(func(c *jetstream.ConsumerConfig) {
			c.MaxAckPending, c.MaxDeliver, c.MaxRequestBatch = 1, 3, 5
		}), steps: list(
			sub("a"), pub(6), pull("a", `{"batch":5,"expires":60000000000}`), update(`{"max_ack_pending":3}`), update(`{"max_batch":2}`),
			pull("a", `{"batch":5}`), update(`{"max_ack_pending":1}`), ack("a", 0, "+ACK"), update(`{"max_deliver":1}`), ack("a", 1, "-NAK"),
			update(`{"max_ack_pending":10}`), pull("a", `{"batch":2,"no_wait":true}`),
		)},
		// A NAK of a delivery from before the reset is ignored, though its message is pending. An acknowledgement counts.
		{name: "reset", cfg: explicit(), steps: list(
			sub("a"), pub(3), pull("a", "3"), ack("a", 0, "-NAK"), ack("a", 1, "-NAK"), pull("a", "2"), reset(), pull("a", "1"),
			ack("a", 3, "-NAK"), pull("a", "1"), ack("a", 5, "-NAK"), pull("a", "1"), confirm("a", 4, "+ACK"),
		)},
		{name: "deletion", cfg: explicit(), steps: list(
			sub("a"), sub("b"), pull("a", `{"batch":2,"expires":60000000000}`), pull("b", `{"batch":3,"expires":60000000000}`), pub(1), remove(),
			pull("a", `{"no_wait":true}`),
		)},
	}
}

// timed is scripts of expiries, heartbeats, ack waits and pins that time out. A busy
// server may be late by 400 ms, the least between a step and what comes by itself.
func timed() []script {
	return []script{
		{name: "expiry", cfg: explicit(), steps: list(
			sub("a"), pull("a", `{"batch":3,"expires":800000000}`), pub(1), sleep(1200),
			pull("a", `{"batch":3,"max_bytes":1000,"expires":800000000}`), pub(1), sleep(1200),
			pull("a", `{"batch":3,"no_wait":true,"expires":800000000}`), sleep(1200), pub(1),
		)},
		{name: "heartbeats", cfg: explicit(), steps: list(
			sub("a"), pull("a", `{"batch":3,"expires":4000000000,"idle_heartbeat":1200000000}`), sleep(1800), pub(1),
			sleep(600), sleep(2800),
		)},
		{name: "ack wait changes", cfg: explicit(func(c *jetstream.ConsumerConfig) { c.AckWait = time.Minute }), steps: list(
			sub("a"), pub(2), pull("a", "2"), sleep(1500), pull("a", `{"batch":4,"expires":60000000000}`), update(`{"ack_wait":1000000000}`),
			sleep(500), ack("a", 2, "+ACK"), update(`{"ack_wait":60000000000}`), sleep(1500),
			update(`{"ack_wait":1000000000,"backoff":[1000000000,3000000000],"max_deliver":5}`), sleep(800), sleep(2400),
		)},
		{name: "ack wait", cfg: explicit(func(c *jetstream.ConsumerConfig) { c.AckWait = 4 * time.Second }), steps: list(
			sub("a"), pub(3), pull("a", "3"), ack("a", 1, "+ACK"), sleep(2000), ack("a", 2, "+WPI"), sleep(2800), pull("a", "2"),
			sleep(2400), ack("a", 3, "+ACK"), ack("a", 4, "+ACK"),
		)},
		{name: "ack wait that is changed", cfg: explicit(), steps: list(
			sub("a"), pub(2), pull("a", "2"), update(`{"ack_wait":1000000000}`), sleep(1600), pull("a", "2"), update(`{"ack_wait":60000000000}`),
			sleep(1600), pull("a", "2"),
		)},
		{name: "nak delay", cfg: explicit(), steps: list(
			sub("a"), pub(2), pull("a", "2"), ack("a", 0, `-NAK {"delay":800000000}`), ack("a", 1, "-NAK 1600ms"),
			pull("a", `{"batch":2,"expires":60000000000}`),
			sleep(1200), sleep(1200),
		)},
		{name: "backoff", cfg: explicit(func(c *jetstream.ConsumerConfig) {
			c.BackOff, c.MaxDeliver = []time.Duration{800 * time.Millisecond, 2 * time.Second}, 3
		}), steps: list(
			sub("a"), pub(1), pull("a", "5"), sleep(1200), sleep(1200), sleep(1400), sleep(2400),
		)},
		{name: "nak delay and backoff", cfg: explicit(func(c *jetstream.ConsumerConfig) {
			c.BackOff = []time.Duration{800 * time.Millisecond, 2800 * time.Millisecond}
		}), steps: list(
			sub("a"), pub(1), pull("a", `{"batch":9,"expires":60000000000}`), ack("a", 0, `-NAK {"delay":1600000000}`), sleep(1200), sleep(1200),
			ack("a", 1, `-NAK {"delay":-1200000000}`), sleep(400), sleep(800), ack("a", 2, `-NAK {"delay":0}`), sleep(1600), sleep(800),
		)},
		{name: "max deliver by time", cfg: explicit(func(c *jetstream.ConsumerConfig) {
			c.AckWait, c.MaxDeliver, c.MaxAckPending = 800*time.Millisecond, 1, 1
		}), steps: list(
			sub("a"), pub(2), pull("a", `{"batch":2,"expires":60000000000}`), sleep(1600), ack("a", 0, "+ACK"),
		)},
		{name: "pin timeout", cfg: explicit(func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"g"}, 4*time.Second
		}), steps: list(
			sub("a"), sub("b"), pull("a", `{"group":"g","batch":1,"expires":60000000000}`), pub(1),
			pull("b", `{"group":"g","batch":5,"expires":60000000000}`), pub(1), sleep(2000),
			pull("a", `{"group":"g","id":"PIN","batch":1,"expires":60000000000}`), sleep(3200), sleep(2000), pub(1),
			pull("a", `{"group":"g","id":"PIN","batch":1,"expires":60000000000}`),
		)},
		{name: "max ack pending and one-shot", cfg: explicit(func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 2 }), steps: list(
			sub("a"), pub(4), pull("a", `{"batch":4,"no_wait":true,"expires":1200000000}`), sleep(1600),
			pull("a", `{"batch":4,"no_wait":true,"expires":1200000000}`), sleep(1600),
		)},
	}
}

func oneServer(t *testing.T) *nats.Conn { return servertest.RunServer(t).Connect(t) }

func TestModelAgreesWithTheServer(t *testing.T) {
	runAll(t, oneServer, untimed(), model.Config{}, inOrder)
}

func TestModelAgreesWithTheServerOnTime(t *testing.T) {
	if testing.Short() {
		t.Skip("a machine that is busy shifts what happens by seconds")
	}
	runAll(t, oneServer, timed(), model.Config{}, inOrder)
}
