package test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// The tests here have a client whose server is not the consumer's. The link between the two stalls: nothing is lost or closed,
// but what is sent arrives seconds later.

// distance is a stream "S" with a consumer "C" on one server or three, and a server without JetStream that clients connect to.
type distance struct {
	js    jetstream.JetStream // beside the stream
	near  string              // the URL of the other server
	links []*natstest.Proxy   // between the two
}

func (d *distance) stall(on bool) {
	for _, p := range d.links {
		p.Stall(on)
	}
}

// distances are the ways in which servers are connected.
var distances = map[string]func(t *testing.T) *distance{
	"leaf":          func(t *testing.T) *distance { return leafNode(t, 1) },
	"leaf of three": func(t *testing.T) *distance { return leafNode(t, 3) },
	"routes":        member,
	"gateways":      gateways,
}

// mostPings is more than servers send each other in a stall, so that they do not close the link. Gateways send one each 15 s.
const mostPings = 10

// hub is one server or three, whose options tune changes.
func hub(t *testing.T, size int, tune func(i int, o *server.Options)) jetstream.JetStream {
	t.Helper()
	i := -1
	each := servertest.WithOptions(func(o *server.Options) {
		i++
		o.JetStreamDomain, o.MaxPingsOut = "hub", mostPings
		tune(i, o)
	})
	if size == 1 {
		s := servertest.RunServer(t, each)
		return domain(t, s.Connect(t))
	}
	return domain(t, servertest.RunCluster(t, each).Connect(t))
}

// domain is JetStream as it is reached from a leaf node too.
func domain(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.NewWithDomain(nc, "hub")
	require.NoError(t, err)
	return js
}

// near starts a server without JetStream.
func near(t *testing.T, opts *server.Options) (address string) {
	t.Helper()
	opts.Host, opts.Port, opts.ServerName, opts.NoSigs, opts.NoLog, opts.MaxPingsOut = "127.0.0.1", -1, "near", true, true, mostPings
	s, err := server.NewServer(opts)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	require.True(t, s.ReadyForConnections(patience))
	return s.ClientURL()
}

// proxies is a proxy in front of each address, and its URL.
func proxies(t *testing.T, to []*net.TCPAddr) (all []*natstest.Proxy, urls []*url.URL) {
	t.Helper()
	for _, addr := range to {
		p := natstest.NewProxy(t, "nats://"+addr.String())
		u, err := url.Parse(p.URL())
		require.NoError(t, err)
		all, urls = append(all, p), append(urls, u)
	}
	return all, urls
}

func addresses(t *testing.T, n int) []*net.TCPAddr {
	t.Helper()
	all, err := servertest.FreeAddresses(n)
	require.NoError(t, err)
	return all
}

// leafNode is a leaf node of one server or three.
func leafNode(t *testing.T, size int) *distance {
	t.Helper()
	ports := addresses(t, size)
	d := &distance{js: hub(t, size, func(i int, o *server.Options) {
		o.LeafNode = server.LeafNodeOpts{Host: "127.0.0.1", Port: ports[i%size].Port, NoAdvertise: true}
	})}
	var urls []*url.URL
	d.links, urls = proxies(t, ports[:1])
	d.near = near(t, &server.Options{LeafNode: server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{{URLs: urls}}}})
	return d
}

// member is a server of the same cluster as the consumer's three. It connects to each of them. All advertise an address at which
// nobody listens, or others would connect to them beside the proxies.
func member(t *testing.T) *distance {
	t.Helper()
	ports := addresses(t, 5)
	nobody := ports[4].String()
	d := &distance{js: hub(t, 3, func(i int, o *server.Options) {
		o.Cluster.Port, o.Cluster.Advertise = ports[i%3].Port, nobody
		o.Routes = nil
		for _, addr := range ports[:3] {
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: addr.String()})
		}
	})}
	var urls []*url.URL
	d.links, urls = proxies(t, ports[:3])
	d.near = near(t, &server.Options{JetStreamDomain: "hub", Routes: urls, Cluster: server.ClusterOpts{
		Name: "servertest", Host: "127.0.0.1", Port: ports[3].Port, Advertise: nobody,
	}})
	return d
}

// gateways are those between the cluster of the consumer and one of a single server.
func gateways(t *testing.T) *distance {
	t.Helper()
	ports := addresses(t, 4)
	links, urls := proxies(t, ports)
	opts := func(i int, name string) server.GatewayOpts {
		return server.GatewayOpts{Name: name, Host: "127.0.0.1", Port: ports[i].Port, Advertise: urls[i].Host}
	}
	d := &distance{js: hub(t, 3, func(i int, o *server.Options) { o.Gateway = opts(i%3, "servertest") }), links: links}
	to := opts(3, "near")
	to.Gateways = []*server.RemoteGatewayOpts{{Name: "servertest", URLs: urls[:3]}}
	d.near = near(t, &server.Options{JetStreamDomain: "hub", Gateway: to})
	return d
}

// create makes the stream and the consumer, and returns a Subscription of a client of the other server. AckWait is an hour: a
// delivery that is lost is missing.
func (d *distance) create(t *testing.T, cfg jetstream.ConsumerConfig) *jetpull.Subscription {
	t.Helper()
	replicas := 1
	if info, err := d.js.AccountInfo(t.Context()); err == nil && info.Limits.MaxConsumers == -1 && len(d.js.Conn().DiscoveredServers()) > 0 {
		replicas = 3
	}
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := d.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: replicas})
		if err == nil {
			cfg.Durable, cfg.AckWait = "C", forever
			_, err = d.js.CreateOrUpdateConsumer(ctx, "S", cfg)
		}
		return err
	}, "the stream is there")
	return d.subscribe(t)
}

// subscribe connects another client to the other server.
func (d *distance) subscribe(t *testing.T) *jetpull.Subscription {
	t.Helper()
	js := domain(t, connect(t, d.near))
	eventually(t, func() error {
		_, err := lookUp(t, js, "S", "C")
		return err
	}, "the servers are connected")
	return subscribe(t, js, "S", "C")
}

// publish publishes messages to the stream, evenly in a time.
func (d *distance) publish(t *testing.T, n int, within time.Duration) {
	t.Helper()
	pace := time.NewTicker(within / time.Duration(n))
	defer pace.Stop()
	for range n {
		<-pace.C
		natstest.Publish(t, d.js, "s.a", 1)
	}
}

// once notes messages, each of which may be delivered once.
type once struct {
	*testing.T
	seen tally
}

func (o *once) note(m *jetpull.Msg) {
	if n := o.seen.add(fmt.Sprint(m.Sequence())); n > 1 || m.Delivered() > 1 {
		o.Errorf("message %d was handled %d times, and delivered %d times", m.Sequence(), n, m.Delivered())
	}
}

// stalls are the lengths of the stalls: some heartbeats, and longer than a pull lives.
func stalls() []time.Duration {
	if testing.Short() {
		return []time.Duration{6 * time.Second}
	}
	return []time.Duration{3 * time.Second, 6 * time.Second, 9 * time.Second, 40 * time.Second}
}

// A third of the messages is published before the stall, a third while it lasts, and a third later. Half of the pulls that are
// open when it begins have messages on the stalled link.
func TestAStalledLinkLosesNoDelivery(t *testing.T) {
	t.Parallel()
	for name, build := range distances {
		if testing.Short() && name != "leaf" {
			continue
		}
		for _, stall := range stalls() {
			t.Run(fmt.Sprintf("%s for %v", name, stall), func(t *testing.T) {
				t.Parallel()
				d := build(t)
				sub := d.create(t, jetstream.ConsumerConfig{})
				o := &once{T: t}
				run := consume(t, sub, func(_ context.Context, m *jetpull.Msg) error { o.note(m); return nil })
				d.publish(t, 200, time.Second)
				d.stall(true)
				d.publish(t, 200, stall)
				require.LessOrEqual(t, o.seen.len(), 200, "the link carries nothing")
				d.stall(false)
				d.publish(t, 200, time.Second)
				reaches(t, 600, "all are handled", o.seen.len)
				run.end(t)
			})
		}
	}
}

// Calls that end while the link is stalled do not take with them what it carries: it goes to the next call, which goes on until all is
// there: a busy server can send a message for a call that has ended since the stall, which then waits for AckWait. The server has no pulls
// of ended calls when a stall begins, for the same reason.
func TestCallsThatEndInAStallLoseNoDelivery(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long: run it without -short")
	}
	t.Parallel()
	d := leafNode(t, 1)
	sub := d.create(t, jetstream.ConsumerConfig{})
	h := &handed{T: t}
	for round := range 3 {
		ctx, stop := context.WithCancel(t.Context()) // t.Context ends it if the test fails
		var calling sync.WaitGroup
		for i := range 8 {
			calling.Go(func() {
				for ctx.Err() == nil {
					short, cancel := context.WithTimeout(ctx, time.Duration(200+150*i)*time.Millisecond)
					msgs, _ := sub.Fetch(short, 3)
					cancel()
					for _, m := range msgs {
						h.note(m)
						assert.NoError(t, m.Ack())
					}
				}
			})
		}
		consumerHas(t, d.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.NumWaiting > 0 }, "pulls")
		d.stall(true)
		d.publish(t, 100, 3*time.Second)
		stop()
		calling.Wait()
		run := consume(t, sub, func(_ context.Context, m *jetpull.Msg) error { h.note(m); return nil })
		d.stall(false)
		reaches(t, 100*(round+1), "all are returned", h.seen.len)
		run.end(t)
		consumerHas(t, d.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.NumWaiting == 0 }, "no pull")
	}
}

// With replay policy original the server sends no heartbeats in its pauses.
func TestPausesOfReplayOriginalLoseNoDelivery(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{2500 * time.Millisecond, 7 * time.Second} {
		t.Run(fmt.Sprint(pause), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			const n = 4
			for i := range n {
				if i > 0 {
					<-time.After(pause) // the stream has the pauses
				}
				r.publish(t, 1)
			}
			for name, take := range map[string]func(*testing.T, *jetpull.Subscription, func(*jetpull.Msg)){
				"Consume": func(t *testing.T, sub *jetpull.Subscription, note func(*jetpull.Msg)) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					require.NoError(t, sub.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
						if note(m); m.Sequence() == n {
							cancel()
						}
						return nil
					}))
				},
				"Next": func(t *testing.T, sub *jetpull.Subscription, note func(*jetpull.Msg)) {
					for {
						m, err := sub.Next(t.Context(), jetpull.MaxWait(3*time.Second))
						if err != nil {
							require.ErrorIs(t, err, jetpull.ErrTimeout)
							continue
						}
						note(m)
						require.NoError(t, m.Ack())
						if m.Sequence() == n {
							return
						}
					}
				},
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					cfg := jetstream.ConsumerConfig{
						Durable: name, ReplayPolicy: jetstream.ReplayOriginalPolicy, AckPolicy: jetstream.AckExplicitPolicy,
						AckWait: forever,
					}
					r.consumer(t, cfg)
					var got []string
					take(t, subscribe(t, r.js, "S", name), func(m *jetpull.Msg) { got = append(got, fmt.Sprint(m.Sequence(), "/", m.Delivered())) })
					require.Equal(t, []string{"1/1", "2/1", "3/1", "4/1"}, got, "in order, each delivered once")
				})
			}
		})
	}
}
