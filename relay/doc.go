// Package relay runs the webhook relay. It accepts messages from senders, POSTs each to its receiver within the receiver's rate
// limit, and carries the response back to the sender. All state is in NATS JetStream.
//
//	cfg := relay.DefaultConfig()
//	cfg.NATS.StoreDir = "relay-data"
//	n, err := relay.Start(ctx, cfg, slog.Default())
//	if err != nil {
//		return err
//	}
//	defer n.Stop(context.Background())
//
// Senders and receivers in Go use package [github.com/jetpull/jetpull/relay/client]. docs/relay-http.md describes the HTTP interface. DESIGN.md
// describes the design, and what is not promised.
package relay
