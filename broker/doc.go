// Package broker is a webhook broker with no database but JetStream: producers
// broadcast messages to channels over HTTP, and every consumer of a channel
// gets a job for each of them, pushed to its callback or pulled by its workers.
//
//	cfg := broker.DefaultConfig()
//	cfg.NATS.StoreDir = "broker-data"
//	n, err := broker.Start(ctx, cfg, slog.Default())
//	if err != nil {
//		return err
//	}
//	defer n.Stop(context.Background())
//
// Package [github.com/jetpull/jetpull/broker/client] is what producers and workers use. DESIGN.md says how it works.
//
// # Model
//
// A broadcast is one stored message. A job, which is one message for one
// consumer, is computed and not written: its ID is made of the message's
// sequence and the consumer's number. A record of a job is written when its
// state changes, and only if the state is still the one the change was decided
// on. That compare-and-swap decides every race, between the workers of a
// consumer, between timers and workers, and between broker processes.
//
// # Delivery
//
// Delivery is at least once. A message accepted with 201 is on disk and is
// delivered or dead for each consumer, never gone. A callback or a worker may
// see a job twice when a process dies between the work and the record of it.
package broker
