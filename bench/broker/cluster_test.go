package broker

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jetpull/jetpull/bench/internal/child"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	clusterSize = 3
	// publishers is the number of publishers to a stream of a cluster. Each publishes one message at a time.
	publishers = 64
	// leaderTimeout limits the wait for the leader of a new cluster.
	leaderTimeout = time.Minute
)

// serveCluster runs three servers in one process, with sync_interval always or the server's default.
func serveCluster(ctx context.Context, dir, sync string, ready func(urls ...string)) error {
	var routes []*url.URL
	var ports []int
	for range clusterSize {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		if err := l.Close(); err != nil {
			return err
		}
	}
	o := natsembed.Options{Sync: natsembed.SyncEvery(2 * time.Minute)} // the default of nats-server
	if sync == "always" {
		o.Sync = natsembed.SyncEach
	}
	var urls []string
	var servers []*natsembed.Server
	defer func() {
		for _, srv := range servers {
			srv.Stop()
		}
	}()
	for i, port := range ports {
		o.Dir, o.Name = filepath.Join(dir, fmt.Sprint(i)), fmt.Sprint("n", i+1)
		o.Configure = func(so *server.Options) error {
			so.Cluster.Name, so.Cluster.Host, so.Cluster.Port, so.Routes = "bench", "127.0.0.1", port, routes
			return nil
		}
		srv, err := natsembed.Start(ctx, o)
		if err != nil {
			return err
		}
		servers = append(servers, srv)
		urls = append(urls, srv.URL())
	}
	ready(strings.Join(urls, ","))
	<-ctx.Done()
	return nil
}

// onCluster runs a benchmark on a cluster that syncs each message, and on one with the server's default.
func onCluster(b *testing.B, name string, f func(b *testing.B, nats string, js jetstream.JetStream)) {
	b.Helper()
	for _, sync := range []string{"default", "always"} {
		b.Run(name+"/sync="+sync, func(b *testing.B) {
			cluster := start(b, "cluster", sync)
			nc, err := nats.Connect(cluster.url)
			require.NoError(b, err)
			b.Cleanup(nc.Close)
			js, err := jetstream.New(nc)
			require.NoError(b, err)
			require.EventuallyWithT(b, func(c *assert.CollectT) {
				_, err := js.CreateOrUpdateStream(b.Context(), jetstream.StreamConfig{Name: "bench", Subjects: []string{"bench.>"}, Replicas: clusterSize})
				require.NoError(c, err)
			}, leaderTimeout, 100*time.Millisecond, "the cluster has no leader")
			f(b, cluster.url, js)
		})
	}
}

// BenchmarkCluster measures what sync_interval always costs on three servers: 64 publishers on a stream with three copies, and a broker.
func BenchmarkCluster(b *testing.B) {
	onCluster(b, "publish", func(b *testing.B, _ string, js jetstream.JetStream) {
		var next atomic.Int64
		b.ResetTimer()
		var load errgroup.Group
		for range publishers {
			load.Go(func() error {
				for next.Add(1) <= int64(b.N) {
					if _, err := js.Publish(b.Context(), "bench.m", payload); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(b, load.Wait())
		child.Rate(b, "msgs/s")
	})
	onCluster(b, "broadcast", func(b *testing.B, nats string, _ jetstream.JetStream) {
		p := start(b, "broker", "", nats)
		p.register(b)
		p.consumer(b, "k", "pull", nowhere)
		b.ResetTimer()
		took := p.broadcast(b, b.N)
		child.Rate(b, "msgs/s")
		child.Latency(b, took)
	})
	onCluster(b, "push", func(b *testing.B, nats string, _ jetstream.JetStream) {
		p := start(b, "broker", "", nats)
		p.register(b)
		done, n := make(chan struct{}), atomic.Int64{}
		p.receive(b, func(*http.Request) {
			if n.Add(1) == int64(b.N) {
				close(done)
			}
		})
		b.ResetTimer()
		p.broadcast(b, b.N)
		wait(b, done)
		child.Rate(b, "msgs/s")
	})
}
