// Package options has calls with options that they cannot use. Each has the error of the compiler behind it.
package options

import (
	"context"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/partition"
)

func wrong(ctx context.Context, sub *jetpull.Subscription, m *jetpull.Msg, h jetpull.Handler) {
	_, _ = sub.Next(ctx, jetpull.FillBatch())             // FetchOption does not implement jetpull.NextOption
	_, _ = m.AckNext(ctx, jetpull.FillBatch())            // FetchOption does not implement jetpull.NextOption
	_, _ = sub.Fetch(ctx, 10, jetpull.Concurrency(4))     // HandlerOption does not implement jetpull.FetchOption
	_ = sub.Messages(ctx, jetpull.MaxAttempts(3))         // HandlerOption does not implement jetpull.MessagesOption
	_ = sub.Consume(ctx, h, jetpull.MaxWait(time.Second)) // NextOption does not implement jetpull.ConsumeOption
	_ = sub.Consume(ctx, h, jetpull.OnPin(nil))           // SubscribeOption does not implement jetpull.ConsumeOption
	partition.With(jetpull.StopAfter(3))                  // MessagesOption does not implement jetpull.HandlerOption
	partition.With(jetpull.DrainBuffered())               // ConsumeOption does not implement jetpull.HandlerOption
	partition.With(jetpull.Group("g"))                    // PullOption does not implement jetpull.HandlerOption

	opts := []jetpull.NextOption{jetpull.MaxWait(time.Second)}
	_ = append(opts, jetpull.FillBatch()) // FetchOption does not implement jetpull.NextOption
}
