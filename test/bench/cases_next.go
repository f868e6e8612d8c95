package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
)

// pullOne is the request of the hand-written rivals: one message, half a minute to find it.
const pullOne = `{"batch":1,"expires":30000000000}`

// ackBody is the positive acknowledgement of the hand-written rivals.
var ackBody = []byte("+ACK")

// nextCases measures one message at a time: Next and Ack on 1, 8 and 64 goroutines, and the two in one.
func nextCases() []Case {
	cases := []Case{
		nextCase(1, 5_000,
			Target{Metric: Rate, Rival: rivalNext, AtLeast: 1.5},
			Target{Metric: Rate, Rival: rivalLegacyOne, AtLeast: 1.2},
			Target{Metric: Rate, Rival: rivalRaw, AtLeast: 1 / 1.4}),
		nextCase(8, 20_000, Target{Metric: Rate, Rival: rivalNext, AtLeast: 1.8}),
		nextCase(64, 40_000, Target{Metric: Rate, Rival: rivalNext, AtLeast: 2.5}),
	}
	return append(cases, Case{
		Name:     "acknext",
		Title:    "AckNext, 1 goroutine",
		Messages: 5_000,
		Once:     true,
		Rivals: []Contender{
			{Name: rivalNext, Run: jetstreamNext(1)},
			{Name: rivalRaw, Run: rawAckNext},
		},
		Targets: []Target{{Metric: Rate, Rival: rivalNext, AtLeast: 1.5}},
	})
}

func nextCase(goroutines, messages int, targets ...Target) Case {
	title, raw := "Next + Ack, 1 goroutine", rivalRaw
	if goroutines > 1 {
		title, raw = fmt.Sprintf("Next + Ack, %d goroutines", goroutines), rivalRawEach
	}
	return Case{
		Name:     fmt.Sprintf("next-%d", goroutines),
		Title:    title,
		Messages: messages,
		Once:     true,
		Rivals: []Contender{
			{Name: rivalNext, Run: jetstreamNext(goroutines)},
			{Name: rivalLegacyOne, Run: legacyNext(goroutines)},
			{Name: rivalChan, Run: chanNext(goroutines)},
			{Name: raw, Run: rawNext(goroutines)},
		},
		Targets: append(targets, Target{Metric: AllocsPer, AtMost: 7}),
	}
}

func jetstreamNext(goroutines int) func(context.Context, *Round) error {
	return func(ctx context.Context, r *Round) error {
		consumer, err := r.consumer(ctx)
		if err != nil {
			return err
		}
		return r.work(ctx, goroutines, func(context.Context) (func() error, error) {
			return func() error {
				m, err := consumer.Next()
				if err != nil {
					return err
				}
				r.Receive(m.Data())
				return m.Ack()
			}, nil
		})
	}
}

// legacyNext gives each goroutine a pull subscription of its own, bound to the one consumer.
func legacyNext(goroutines int) func(context.Context, *Round) error {
	return func(ctx context.Context, r *Round) error {
		js, err := r.Conn.JetStream()
		if err != nil {
			return err
		}
		return r.work(ctx, goroutines, func(context.Context) (func() error, error) {
			sub, err := js.PullSubscribe("", "", nats.Bind(r.Stream, r.Consumer))
			if err != nil {
				return nil, err
			}
			return func() error {
				msgs, err := sub.Fetch(1)
				if err != nil {
					return err
				}
				r.Receive(msgs[0].Data)
				return msgs[0].Ack()
			}, nil
		})
	}
}

// chanNext is the least that can be done on nats.go: an inbox and a channel for each goroutine, one publish for the
// pull and one for the ack.
func chanNext(goroutines int) func(context.Context, *Round) error {
	return func(ctx context.Context, r *Round) error {
		pull, request := r.pullSubject(), []byte(pullOne)
		return r.work(ctx, goroutines, func(ctx context.Context) (func() error, error) {
			inbox := r.Conn.NewInbox()
			messages := make(chan *nats.Msg, 1)
			if _, err := r.Conn.ChanSubscribe(inbox, messages); err != nil {
				return nil, err
			}
			return func() error {
				if err := r.Conn.PublishRequest(pull, inbox, request); err != nil {
					return err
				}
				select {
				case m := <-messages:
					r.Receive(m.Data)
					return r.Conn.Publish(m.Reply, ackBody)
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}, nil
		})
	}
}

// rawNext gives each goroutine a socket of its own. With one goroutine that is the limit for a lone caller; with many it
// is not, since nothing is shared.
func rawNext(goroutines int) func(context.Context, *Round) error {
	return func(ctx context.Context, r *Round) error {
		clients := make([]*rawClient, 0, goroutines)
		defer func() {
			for _, c := range clients {
				c.close()
			}
		}()
		steps := make([]func() error, goroutines)
		for i := range steps {
			client, err := dialRaw(ctx, r.URL, r.pullSubject())
			if err != nil {
				return err
			}
			clients = append(clients, client)
			steps[i] = func() error {
				if err := client.next(); err != nil {
					return err
				}
				r.Receive(client.body)
				return nil
			}
		}
		return runRaw(ctx, r, clients, steps)
	}
}

func rawAckNext(ctx context.Context, r *Round) error {
	client, err := dialRaw(ctx, r.URL, r.pullSubject())
	if err != nil {
		return err
	}
	defer client.close()
	step := func() error {
		if err := client.ackNext(); err != nil {
			return err
		}
		r.Receive(client.body)
		return nil
	}
	return runRaw(ctx, r, []*rawClient{client}, []func() error{step})
}

// runRaw is Round.work for clients that hold the last ack back until finish.
func runRaw(ctx context.Context, r *Round, clients []*rawClient, steps []func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.Start()
	if err := runSteps(ctx, cancel, r, steps); err != nil {
		return err
	}
	for _, c := range clients {
		if err := c.finish(); err != nil {
			return fmt.Errorf("acknowledge the last message: %w", err)
		}
	}
	return r.Stop(ctx)
}
