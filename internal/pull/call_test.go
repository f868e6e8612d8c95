package pull

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func playAll(t *testing.T, scripts map[string]string) {
	for name, text := range scripts {
		t.Run(name, func(t *testing.T) { play(t, text) })
	}
}

// Calls: Next is some 1, Fetch some n, and with FillBatch fill n.
func TestCalls(t *testing.T) {
	playAll(t, map[string]string{
		"a no-wait pull, and a long one where that finds nothing": `
			post a some 1 5s -> sub i1; p1 i1 1 now | p1 msg 1 -> a=1 | post b some 1 5s -> p2 i1 1 now
			+10ms; p2 404 -> sub i2; p3 i2 1 once 4.89s hb1s | p3 msg 2 -> b=2; unsub i2`,
		"the long pull ends with the first messages": `
			~post a some 9 5s; p1 pending -> sub i2; p2 i2 9 once 4.9s hb1s | +2s; p2 msg 1 2 3; p2 404 -> unsub i2; a=1,2,3`,
		"at MaxAckPending no status follows what a long pull has brought": `
			~post a some 9 5s; ~p1 404; +1s; p2 msg 1; +2s -> @500ms prove; a=1; prove; drain i2`,
		"fill": `
			post a fill 5 5s -> sub i1; p1 i1 5 now | p1 msg 1 2; p1 404 -> sub i2; p2 i2 3 4.9s hb1s
			p2 msg 3 4; p2 msg 5 -> a=1,2,3,4,5; unsub i2`,
		"fill returns at its deadline with what it has": `
			~post a fill 5 1s; ~p1 404; p2 msg 1; +400ms; p2 100; +400ms; p2 100; +200ms -> @200ms a=1; prove; drain i2`,
		"without an answer": `
			~post a some 2 5s nowait; p1 404 -> a=!empty | post b some 2 5s nowait -> p2 i1 2 now | p2 msg 1; p2 pending -> b=1
			post c some 2 5s nowait -> p3 i1 2 now | +9s -> @1s prove; sub i2; p4 i2 2 once 100ms; @2.1s c=!timeout:silent; prove; drain i1; drain i2`,
		"with NoWait at MaxAckPending, a pull that expires at once says so": `
			~post a some 2 5s nowait; +1s -> @1s prove; sub i2; p2 i2 2 once 100ms; drain i1 | +100ms; p2 408 left=2 -> unsub i2; a=!empty`,
		"a MaxRequestExpires of 1 ms makes ten pulls a second": `
			limits expires=1ms; post s stand 9 -> sub i1; p1 i1 9 1ms hb500µs | +1ms; p1 408 left=9 -> | +99ms -> @99ms p2 i1 9 1ms hb500µs`,
		"other clients have claims on what is pending, until a message comes": `
			~post a some 5 5s; ~p1 404; p2 pending -> unsub i2; sub i3; p3 i3 1 4.9s hb1s | p3 msg 1 -> unsub i3; p4 i1 4 now
			p4 404 -> a=1 | post b some 5 5s -> p5 i1 5 now | p5 404 -> sub i4; p6 i4 5 once 4.9s hb1s`,
		"late in its life a one-shot without a message has lost a race": `
			~post a some 1 2s; ~p1 404; +950ms; p2 404 -> unsub i2; sub i3; p3 i3 1 once 950ms hb212.5ms`,
		"the end of the wait: by the server, or by the deadline": `
			~post a some 1 1s; ~p1 404; +400ms; p2 100; +450ms; p2 408 left=1 -> unsub i2; a=!timeout
			down; post b some 1 1s; +1s -> @1s b=!timeout`,
	})
}

func TestSharing(t *testing.T) {
	playAll(t, map[string]string{
		"calls that come meanwhile share the next no-wait pull, and messages go by the order of calls": `
			~post a some 1 5s; post b some 1 5s; post c some 3 5s; p1 msg 1 -> a=1; p2 i1 4 now | p2 msg 2 3 -> b=2 | p2 404 -> c=3`,
		"calls share a long pull, which lasts as long as the longest": `
			~post a some 1 5s; post b some 1 5s; post c some 1 9s; p1 404 -> p2 i1 2 now; sub i2; p3 i2 1 once 4.9s hb1s
			p2 404 -> sub i3; p4 i3 2 once 8.9s hb1s | p3 msg 1 -> a=1; unsub i2 | p4 msg 2 3 -> b=2; c=3; unsub i3`,
		"want that leaves is to spare for others": `
			~post a some 1 5s; post b some 3 5s; post c some 2 5s; p1 404 -> p2 i1 5 now; sub i2; p3 i2 1 once 4.9s hb1s
			p2 404 -> sub i3; p4 i3 5 once 4.9s hb1s | cancel b -> b=!canceled | post d some 3 4s -> p5 i1 3 now
			p5 404; post e some 1 4s -> p6 i1 1 now | p6 404 -> sub i4; p7 i4 1 once 3.9s hb950ms | cancel d -> d=!canceled
			post f some 1 9s -> p8 i1 1 now | p8 404 -> sub i5; p9 i5 1 once 8.9s hb1s`,
		"no-wait takes what a pull from before the call brings, and does not trust it when it finds nothing": `
			~post a some 3 5s; cancel a -> a=!canceled
			post b some 3 5s nowait; post c some 3 5s; p1 404 -> p2 i1 6 now | p2 404 -> b=!empty; sub i2; p3 i2 3 once 4.9s hb1s`,
		"a pull that covers nobody is drained, and what comes late goes to the next call or back": `
			~post a some 1 5s; ~p1 404; cancel a -> a=!canceled; prove; drain i2 | post b some 1 5s -> p3 i1 1 now | p2 msg 1 -> b=1
			p3 msg 2 -> nak 2 | drained i2 ->`,
		"ack none: it stays open, and what comes late is kept": `
			limits acknone; ~post a some 1 5s; ~p1 404; cancel a -> a=!canceled | post b some 1 3s -> p3 i1 1 now
			p3 404; p2 msg 7 -> b=7; unsub i2 | post c some 2 3s -> p4 i1 2 now | cancel c -> c=!canceled
			p4 msg 8 9; post d some 3 3s mb=150 -> d=8 | post e some 3 3s -> e=9`,
		"max_bytes shares with none, and its late messages go to a call without": `
			~post a some 1 5s mb=100; post b some 1 5s mb=100 -> sub i2; p2 i2 1 now mb100 | cancel a -> a=!canceled
			post c some 1 5s -> sub i3; p3 i3 1 now | p1 msg 1 -> c=1 | p2 msg 2 -> b=2`,
		"other terms do not share": `
			~post a some 1 5s g=x; post b some 1 5s g=x prio=3 -> sub i2; p2 i2 1 now g=x prio=3
			post c some 1 5s hb=1s -> sub i3; p3 i3 1 now | p2 msg 1 -> b=1`,
		"the consumer's limit on a batch": `
			limits batch=9; down; post a some 5 5s; post b some 4 5s; post c some 5 5s; up -> sub i1; p1 i1 9 now; doubt
			p1 404 -> p2 i1 5 now; sub i2; p3 i2 9 once 4.9s hb1s`,
	})
}

func TestAccounting(t *testing.T) {
	playAll(t, map[string]string{
		"R3: a status overtakes the messages that it counts": `
			~post a some 5 5s; p1 msg 1; p1 batch left=2; +1.999s; p1 msg 2; p1 404; p1 msg 3 -> a=1,2,3 | post b some 1 5s -> p2 i1 1 now`,
		"they are awaited for 2 s, and welcome later": `
			~post a fill 5 9s; p1 408 left=3; +2s -> @2s prove; sub i2; p2 i2 5 6.9s hb1s; drain i1
			p1 msg 1; drained i1; p2 msg 2 3 4 5 -> a=1,2,3,4,5; prove; drain i2`,
		"more has arrived than the status admits, or is pending than was asked for": `
			~post a some 5 9s; p1 msg 1 2 3; p1 408 left=4 -> a=1,2,3
			~post b some 5 9s; p2 408 left=6 -> sub i2; p3 i2 5 once 8.9s hb1s`,
		"bytes that are used up end a pull without a word, and something may follow": `
			~post a some 5 5s mb=200; p1 msg 1; p1 msg 2 -> a=1,2; drain i1 | p1 bytes left=3 ->`,
		"the rest of the bytes": `
			~post a fill 5 5s mb=301; p1 msg 1 2; p1 404 -> sub i2; p2 i2 3 4.9s hb1s mb101 | p2 msg 3; p2 bytes left=2 -> unsub i2; a=1,2,3`,
		"a late status of the inbox's last pull": `
			~post a some 1 5s mb=900; p1 msg 1 -> a=1 | post b some 1 5s -> p2 i1 1 now | p1 batch left=0; p1 deleted; p2 msg 2 -> b=2`,
		"data can follow the word of a new leader": `
			~post a some 2 5s; p1 leader -> prove; drain i1 | p1 msg 1; drained i1; +200ms -> @200ms sub i2; p2 i2 1 now`,
		"more than the channel holds": `
			slots 4; ~post a some 9 5s; p1 msg 1 2 3 4 -> p2 i1 4 now | p2 msg 5 6 7 8 -> p3 i1 1 now | p3 msg 9 -> a=1,2,3,4,5,6,7,8,9`,
		"a long pull takes half of the free slots, and a no-wait pull all": `
			slots 10; ~post a fill 99 1m; post b some 1 5s g=x; p1 404 -> sub i2; p2 i2 5 59.9s hb1s; p3 i1 1 now g=x | p3 msg 1 -> b=1`,
	})
}

func TestFailures(t *testing.T) {
	playAll(t, map[string]string{
		"a no-wait pull without an answer costs half of the wait, 1 s at most": `
			~post a some 1 1s; +500ms -> @500ms prove; sub i2; p2 i2 1 once 400ms hb75ms; drain i1 | p1 msg 1 -> a=1; prove; drain i2
			post b some 1 9s -> sub i3; p3 i3 1 now | +2s -> @1s prove; sub i4; p4 i4 1 once 7.9s hb1s; prove; drain i3`,
		"two missed heartbeats cost half of the wait, 3 s at most, and the next pull is refused aloud": `
			~post a some 1 9s; ~p1 404; +1s; p2 100; +2.1s -> @2.1s prove; sub i3; p3 i3 1 once 5.8s; drain i2
			p2 msg 1 -> a=1; prove; drain i3 | post b some 1 2s -> p4 i1 1 now | p4 404 -> sub i4; p5 i4 1 once 1.9s hb450ms
			+1s -> @1s prove; sub i5; p6 i5 1 once 900ms; drain i4`,
		"the user's heartbeat, where there is time for it": `
			~post a some 1 30s hb=5s; ~p1 404; cancel a -> a=!canceled; prove; drain i2 | post b some 1 8s hb=5s -> p3 i1 1 now
			p3 404 -> sub i3; p4 i3 1 once 7.9s hb1s`,
		"503 and the like: back off, and look at the consumer": `
			~post a some 1 9s; p1 503 -> doubt | +199ms; +1ms -> @1ms p2 i1 1 now
			p2 waiting; +400ms -> @400ms p3 i1 1 now | p3 503 -> doubt | +500ms; +34ms -> @33.333333ms p4 i1 1 now
			p4 503 -> doubt | +534ms -> @533.333333ms p5 i1 1 now | p5 404 -> sub i2; p6 i2 1 once 7.232s | p6 msg 1 -> a=1; unsub i2
			post b some 1 5s -> p7 i1 1 now | p7 503 -> doubt`,
		"a timeout has what stood in the way": `
			~post a some 1 300ms; p1 shutdown left=1 ->
			+1s -> @200ms p2 i1 1 now; @250ms prove; sub i2; p3 i2 1 once 45ms; @300ms a=!timeout:shutdown; prove; drain i2; drain i1
			post b some 1 300ms -> sub i3; p4 i3 1 now | p4 shutdown left=1; +1s -> @300ms b=!timeout:shutdown`,
		"reconnected: all pulls end, and calls go on where they were": `
			~post a some 1 5s; ~p1 404; post b some 3 5s -> p3 i1 3 now | post c some 3 5s g=x -> sub i3; p4 i3 3 now g=x
			p4 msg 4; down -> c=4 | p2 msg 5 -> a=5; unsub i2 | up -> drain i1; sub i4; p5 i4 3 now; drain i3; doubt
			p5 503; up -> doubt; p6 i4 3 now; doubt`,
		"no call asks for more than MaxRequestExpires, but one whose user chose the wait": `
			limits expires=1s; ~post a some 1 2.1s; ~p1 404; post b some 1 5s chosen -> p3 i1 1 now
			p3 404 -> sub i3; p4 i3 1 once 4.9s hb1s | p4 limit -> unsub i3; doubt; b=!limit
			+500ms; p2 100; +500ms; p2 408 left=1 -> unsub i2; sub i4; p5 i4 1 once 1s hb225ms`,
		"over a limit: only the call that asks for more": `
			limits expires=2s; ~post a some 1 9s; ~post b some 1 3s chosen; p1 404 -> sub i3; p3 i3 1 once 2s hb475ms
			p2 404 -> sub i4; p4 i4 1 once 2.9s hb700ms
			p4 limit -> unsub i4; doubt; b=!limit`,
		"over a limit that is lower than it was: all that share the pull, and the next ones know it": `
			~post a some 3 5s; ~post b some 3 5s; p1 404 -> p2 i1 3 now; sub i2; p3 i2 3 once 4.9s hb1s | p2 limit -> doubt; b=!limit
			limits batch=5; post c some 3 5s; post d some 3 5s -> | +200ms -> @200ms p4 i1 3 now`,
		"an answer that is lost costs a call that shares the pull half of its wait": `
			~post a some 1 10s; post b some 1 1s -> | +500ms -> @500ms prove; sub i2; p2 i2 1 now; sub i3; p3 i3 1 once 9.4s hb1s; drain i1
			post c some 1 20ms -> | +20ms -> @20ms c=!timeout`,
		"an ack policy that is new drops what was kept": `
			limits acknone; ~post a some 1 5s; cancel a -> a=!canceled | p1 msg 1; limits; post b some 1 5s -> p2 i1 1 now`,
		"refused for good, or until now": `
			~post a some 1 5s; fail -> a=!failed; drain i1 | post b some 1 5s -> sub i2; p2 i2 1 now | fail final -> b=!failed
			post c some 1 5s -> c=!failed | post s stand 4 -> s=!failed end`,
		"close: what is on the wire goes back": `
			~post a some 1 5s; ~p1 404; post b some 3 5s -> p3 i1 3 now | post s stand 4 g=x -> sub i3; p4 i3 4 30s hb2s g=x
			close -> a=!closed; b=!closed; drain i2; s=!closed end; drain i3; drain i1 | p2 msg 1 -> nak 1
			p3 404; p4 msg 5 -> nak 5 | drained i1; post c some 1 5s -> c=!closed`,
	})
}

func TestShareGroupsDoNotAddUp(t *testing.T) {
	w := newWorld(t, Limits{}, 1000)
	for n := range 200 {
		terms := []string{"mb=100", fmt.Sprint("g=g", n)}[n%2]
		for _, event := range []string{fmt.Sprintf("post a%d some 1 5s %s", n, terms), fmt.Sprintf("p%d msg %d", n+1, n)} {
			w.event(strings.Fields(event))
			w.act()
		}
		require.LessOrEqual(t, len(w.e.shares), spareShares+2)
	}
	w.end()
}
