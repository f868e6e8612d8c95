package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The contract holds on three servers with three replicas as it does on the
// embedded server.
func TestContractOnThreeServers(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers")
	}
	cluster := natstest.RunCluster(t)
	urls := make([]string, len(cluster.Servers))
	for i, srv := range cluster.Servers {
		urls[i] = srv.URL()
	}
	sites := 0
	onCluster = func(cfg *broker.Config) {
		sites++
		cfg.NATS.URL, cfg.NATS.Replicas = strings.Join(urls, ","), 3
		cfg.NATS.Name = fmt.Sprintf("site%d", sites)
	}
	t.Cleanup(func() { onCluster = nil })
	for name, test := range map[string]func(*testing.T){
		"PutAndConditions": TestPutAndConditions, "DeleteConsumer": TestDeleteConsumer, "BroadcastChecksInOrder": TestBroadcastChecksInOrder,
		"Message": TestMessage, "PullChecksInOrder": TestPullChecksInOrder, "Transitions": TestTransitions, "Claims": TestClaims,
		"DeadLetters": TestDeadLetters, "Scheduled": TestScheduled, "Pages": TestPages, "OddIDsRoundTrip": TestOddIDsRoundTrip,
	} {
		t.Run(name, test)
	}
}
