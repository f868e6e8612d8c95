// Package broker is a webhook broker on NATS JetStream. Producers broadcast messages to channels over HTTP. Each consumer of a channel
// gets a job for each message. Jobs are pushed to the consumer's callback URL, or claimed by its workers.
//
//	cfg := broker.DefaultConfig()
//	cfg.NATS.StoreDir = "broker-data"
//	n, err := broker.Start(ctx, cfg, slog.Default())
//	if err != nil {
//		return err
//	}
//	defer n.Stop(context.Background())
//
// Producers and workers in Go use package [github.com/jetpull/jetpull/broker/client]. docs/broker-http.md describes the HTTP interface. DESIGN.md
// describes the implementation.
//
// # Model
//
// A broadcast is one stored message. A job is one message for one consumer. Creating a job needs no write: its ID consists of the message's sequence
// and the consumer's number. The broker writes a record of a job when its state changes, and only if the stored state is the one on which the change
// was based. This compare-and-swap decides every race: between the workers of a consumer, between timers and workers, and between broker processes.
//
// # Delivery
//
// Delivery is at least once. A message accepted with 201 is on disk. For each consumer, it ends as delivered or dead, and is never lost. If a process
// dies after the work and before recording it, a callback or a worker gets the job again.
package broker
