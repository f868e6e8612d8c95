package servertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

const (
	clusterSize = 3
	// clusterTimeout limits the waits of a cluster. An election takes up to
	// nine seconds, and may need to be repeated.
	clusterTimeout = time.Minute
)

// Cluster is three servers in this process that form one JetStream cluster.
type Cluster struct {
	// Servers are the members, with the names S1 to S3. Stop and start them
	// with [Cluster.StopServer] and [Cluster.StartServer].
	Servers []*Server
}

// RunCluster starts a cluster and waits until all members follow a meta leader.
// Options apply to each server. The cluster is stopped when the test ends.
func RunCluster(tb testing.TB, opts ...ServerOption) *Cluster {
	tb.Helper()
	natstest.EmptyTimerPool()
	routes, err := FreeAddresses(clusterSize)
	require.NoError(tb, err)
	c := &Cluster{}
	for i := range clusterSize {
		c.Servers = append(c.Servers, newTestServer(tb, append([]ServerOption{Clustered(i, routes)}, opts...)))
	}
	for _, s := range c.Servers {
		s.Start()
	}
	c.waitMembers(tb)
	return c
}

// Clustered makes a server member i, counted from 0, of the cluster whose members have routes.
func Clustered(i int, routes []*net.TCPAddr) ServerOption {
	return WithOptions(func(o *server.Options) {
		o.ServerName = fmt.Sprintf("S%d", i+1)
		o.Cluster.Name = "servertest"
		o.Cluster.Host = "127.0.0.1"
		o.Cluster.Port = routes[i].Port
		o.Routes = nil
		for _, addr := range routes {
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: addr.String()})
		}
	})
}

// Ports for routes are below those that systems use for outgoing connections. Such
// a connection could take a port before its member starts, or while it is stopped.
// A process tries each port once.
const (
	firstPort = 15000
	portCount = 17000
)

var (
	portOffset = rand.IntN(portCount)
	portsTried atomic.Int64
)

// FreeAddresses returns n loopback addresses with unused ports. All members must know all routes before the first of them starts.
func FreeAddresses(n int) ([]*net.TCPAddr, error) {
	var addrs []*net.TCPAddr
	for len(addrs) < n {
		tried := int(portsTried.Add(1))
		if tried > portCount {
			return nil, fmt.Errorf("servertest: no free port from %d to %d", firstPort, firstPort+portCount-1)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+(portOffset+tried)%portCount))
		if err != nil {
			continue // another program listens there
		}
		addrs = append(addrs, l.Addr().(*net.TCPAddr))
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("servertest: free the port %s: %w", l.Addr(), err)
		}
	}
	return addrs, nil
}

// Connect connects to the running members; see [Server.Connect].
func (c *Cluster) Connect(tb testing.TB, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	return natstest.Connect(tb, c.URLs(), opts...)
}

// URLs returns the URLs of the running members, separated by commas.
func (c *Cluster) URLs() string {
	var urls []string
	for _, s := range c.Servers {
		if s.Unwrap() != nil {
			urls = append(urls, s.URL())
		}
	}
	return strings.Join(urls, ",")
}

// StopServer stops member i, counted from 0, gracefully.
func (c *Cluster) StopServer(i int) { c.Servers[i].Stop() }

// StartServer restarts member i, and waits until all running members follow the meta leader.
func (c *Cluster) StartServer(tb testing.TB, i int) {
	tb.Helper()
	c.Servers[i].Start()
	c.waitMembers(tb)
}

// StreamLeader returns the member that leads the stream, or -1 if there is no leader now.
func (c *Cluster) StreamLeader(stream string) int {
	return c.find(func(s *server.Server) bool {
		return s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream)
	})
}

// ConsumerLeader returns the member that leads the consumer, or -1 if there is no leader now.
func (c *Cluster) ConsumerLeader(stream, consumer string) int {
	return c.find(func(s *server.Server) bool {
		return s.JetStreamIsConsumerLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream, consumer)
	})
}

func (c *Cluster) find(leads func(*server.Server) bool) int {
	for i, s := range c.Servers {
		if srv := s.Unwrap(); srv != nil && leads(srv) {
			return i
		}
	}
	return -1
}

// StepDownConsumer makes another member the consumer's leader, waits for it,
// and returns it.
func (c *Cluster) StepDownConsumer(tb testing.TB, stream, consumer string) int {
	tb.Helper()
	before := c.waitLeader(tb, stream, consumer, -1)
	subject := fmt.Sprintf(server.JSApiConsumerLeaderStepDownT, stream, consumer)
	nc, err := nats.Connect(c.URLs())
	require.NoError(tb, err)
	defer nc.Close()
	eventually(tb, waitTimeout, subject, func() error {
		answer, err := nc.Request(subject, nil, waitTimeout)
		if err != nil {
			return err
		}
		var status struct {
			Success bool `json:"success"`
		}
		if err := json.Unmarshal(answer.Data, &status); err != nil || !status.Success {
			// This also happens while a busy member has no meta leader.
			return fmt.Errorf("answered with %s", answer.Data)
		}
		return nil
	})
	return c.waitLeader(tb, stream, consumer, before)
}

// waitLeader waits for another leader of the consumer than before, and returns it.
func (c *Cluster) waitLeader(tb testing.TB, stream, consumer string, before int) int {
	tb.Helper()
	now := -1
	eventually(tb, clusterTimeout, "another leader of consumer "+consumer, func() error {
		if now = c.ConsumerLeader(stream, consumer); now < 0 || now == before {
			return fmt.Errorf("leader is %d, was %d", now, before)
		}
		return nil
	})
	return now
}

// waitMembers waits until all running members follow one meta leader that knows enough of them to place streams.
func (c *Cluster) waitMembers(tb testing.TB) {
	tb.Helper()
	eventually(tb, clusterTimeout, "all members follow the meta leader", func() error {
		var leader *server.Server
		running := 0
		for _, s := range c.Servers {
			srv := s.Unwrap()
			switch {
			case srv == nil:
				continue
			case !srv.JetStreamIsCurrent():
				return fmt.Errorf("%s is behind the meta leader", srv.Name())
			case srv.JetStreamIsLeader():
				leader = srv
			}
			running++
		}
		if leader == nil {
			return errors.New("no meta leader")
		}
		if known := leader.JetStreamClusterPeers(); len(known) < running {
			return fmt.Errorf("the meta leader %s knows only %v", leader.Name(), known)
		}
		return nil
	})
}

// WaitReady waits until the stream and the consumer have leaders, and all their replicas are current. If consumer is empty, it waits only for
// the stream.
func (c *Cluster) WaitReady(tb testing.TB, stream, consumer string) {
	tb.Helper()
	nc, err := nats.Connect(c.URLs())
	require.NoError(tb, err)
	defer nc.Close()
	js := natstest.JetStream(tb, nc)
	ctx, cancel := natstest.Context(tb)
	defer cancel()
	eventually(tb, clusterTimeout, fmt.Sprintf("leaders and replicas of stream %s, consumer %q", stream, consumer), func() error {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		if err := current(s.CachedInfo().Cluster); err != nil || consumer == "" {
			return err
		}
		cons, err := s.Consumer(ctx, consumer)
		if err != nil {
			return err
		}
		return current(cons.CachedInfo().Cluster)
	})
}

// current returns an error unless a group has a leader and all its replicas are current.
func current(group *jetstream.ClusterInfo) error {
	if group == nil || group.Leader == "" {
		return errors.New("no leader")
	}
	for _, replica := range group.Replicas {
		if replica.Offline || !replica.Current {
			return fmt.Errorf("replica %s is offline (%t) or not current (%t)", replica.Name, replica.Offline, replica.Current)
		}
	}
	return nil
}

// RunMember runs a server of a cluster in a separate process. It returns when standard input ends, which happens when the parent process ends. number
// is the number of the server, and ports are those for clients, for monitoring, and for the routes of all members.
func RunMember(dir, number, ports string) error {
	place, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	var addrs []*net.TCPAddr
	for text := range strings.SplitSeq(ports, ",") {
		port, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		addrs = append(addrs, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	}
	fixed := WithOptions(func(o *server.Options) { o.Port, o.HTTPHost, o.HTTPPort = addrs[0].Port, "127.0.0.1", addrs[1].Port })
	if _, err := StartServer(dir, Clustered(place, addrs[2:]), fixed); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
