// Package relay runs the webhook relay: it takes messages from senders, POSTs each to its receiver within the
// receiver's rate limit, and carries the response back. All state is in NATS JetStream.
//
//	cfg := relay.DefaultConfig()
//	cfg.NATS.StoreDir = "relay-data"
//	n, err := relay.Start(ctx, cfg, slog.Default())
//	if err != nil {
//		return err
//	}
//	defer n.Stop(context.Background())
//
// Package [github.com/jetpull/jetpull/relay/client] is what senders and receivers use. DESIGN.md says how it works
// and what it does not promise.
package relay
