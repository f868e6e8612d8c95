package pull

import "testing"

// A standing demand is Messages or Consume.
func TestStanding(t *testing.T) {
	playAll(t, map[string]string{
		"half of the window that is neither held nor on order makes the next pull": `
			post s stand 10 -> sub i1; p1 i1 10 30s hb2s | p1 msg 1 2 3 4 -> s=1,2,3,4 | credit s 4; p1 msg 5 -> s=5
			credit s 1 -> sub i2; p2 i2 5 30s hb2s | p1 msg 6 7 8 9 10 -> s=6,7,8,9,10 | p2 msg 11 12 -> s=11,12
			cancel s -> s=!canceled end; prove; drain i2 | p2 msg 13 -> nak 13`,
		"or half of what is not with workers": `
			~post s stand 10 workers=4; p1 msg 1 2 3 4 5 6 7 8 9 10 -> s=1,2,3,4,5,6,7,8,9,10 | credit s 2; credit s 1 -> p2 i1 3 30s hb2s`,
		"or a worker that waits, with nothing on order": `
			~post s stand 10; p1 msg 1 2 3 4 5 6 7 8 9 10 -> s=1,2,3,4,5,6,7,8,9,10 | credit s 1 starving -> p2 i1 1 30s hb2s
			credit s 1 starving; p2 msg 11 -> s=11 | credit s 1 ->`,
		"pulls that bring little settle to one": `
			~post s stand 10 hb=14s; p1 msg 1 2 3 4 5 -> s=1,2,3,4,5 | credit s 5 -> sub i2; p2 i2 5 30s hb14s
			+14s; p1 100; p2 100; +14s; p1 100; p2 100; +2s; p1 408 left=5; p2 408 left=5 -> p3 i2 10 30s hb14s
			p3 msg 6 7 8 9 10 -> s=6,7,8,9,10 | credit s 5; p3 msg 11 12 13 14 -> s=11,12,13,14 | p3 msg 15 -> s=15; p4 i2 5 30s hb14s`,
		"a pull ends on a multiple of 2 s, so that what is idle has its heartbeats at the same time": `
			+1.3s; post s stand 4 -> sub i1; p1 i1 4 2.7s hb1.35s | +2.7s; p1 408 left=4 -> p2 i1 4 30s hb2s`,
		"which one that begins a little later does too": `
			+2.05s; post s stand 4 -> sub i1; p1 i1 4 29.95s hb2s`,
		"until a message comes where less than an eighth is on order": `
			~post s stand 16 hb=15s; +15s; p1 100; p1 msg 1 2 3 4 5 6 7 8 -> s=1,2,3,4,5,6,7,8 | credit s 8 -> sub i2; p2 i2 8 30s hb15s
			p2 msg 9 10 11 12 13 14 -> s=9,10,11,12,13,14
			+15s; p1 408 left=8; p2 100; credit s 6; p2 msg 15 -> s=15; p3 i1 14 30s hb15s`,
		"a quarter of MaxWaiting may be open, or two": `
			limits waiting=4; ~post s stand 9; p1 msg 1 2 3 4 5 -> s=1,2,3,4,5 | credit s 5 -> sub i2; p2 i2 5 30s hb2s
			p1 msg 6 7 8 -> s=6,7,8 | p2 msg 9 10 -> s=9,10 | credit s 5; p1 msg 11 -> s=11; p3 i1 5 30s hb2s`,
		"the consumer's limits": `
			limits batch=4 expires=1s bytes=300; post s stand 40 bytes=9000 -> sub i1; p1 i1 4 1s hb500ms mb300
			p1 msg 1 2 -> s=1,2 | p1 batch left=2 bytes=100 -> p2 i1 4 1s hb500ms mb300`,
		"where the server is far away, no more than comes in two round trips, or is pending there": `
			+300ms; answered; post s stand 900 -> sub i1; p1 i1 16 3.7s hb1.85s | p1 msg 1 2 3 4 5 6 7 8 -> s=1,2,3,4,5,6,7,8
			credit s 8 -> sub i2; p2 i2 8 3.7s hb1.85s | credit s 0 pending=99 -> sub i3; p3 i3 83 3.7s hb1.85s
			p1 msg 9 10 11 12 13 14 15 16 -> s=9,10,11,12,13,14,15,16 | +1s; credit s 8 -> | p2 msg 17 -> s=17`,
		"or in 600 ms": `
			+20ms; answered; post s stand 900 -> sub i1; p1 i1 16 29.98s hb2s | p1 msg 1 2 -> s=1,2; sub i2; p2 i2 15 29.98s hb2s
			credit s 2 -> sub i3; p3 i3 31 29.98s hb2s`,
		"calls go first, and then the demand that asked": `
			~post s stand 5; post r stand 5 -> sub i2; p2 i2 5 30s hb2s | post a some 1 5s -> sub i3; p3 i3 1 now
			p2 msg 1 -> a=1 | p2 msg 2 -> r=2 | p1 msg 3 -> s=3 | p3 msg 4 -> s=4 | cancel r -> r=!canceled end; prove; drain i2 | p2 msg 5 -> s=5`,
		"messages that a status has promised count as on order for 800 ms": `
			~post s stand 10; p1 msg 1 -> s=1 | p1 batch left=0; +800ms -> @800ms sub i2; p2 i2 9 3.2s hb1.6s | p1 msg 2 -> s=2
			+1.2s -> @1.2s prove; drain i1 | p1 msg 3 -> s=3`,
		"a window beyond the channel is pulled for in halves of the channel too": `
			slots 9; post s stand 100 -> sub i1; p1 i1 5 30s hb2s | p1 msg 1 -> s=1
			credit s 1 -> sub i2; p2 i2 3 30s hb2s | p1 msg 2 -> s=2 | credit s 1 -> | p2 msg 3 4 -> s=3,4 | credit s 2 -> sub i3; p3 i3 3 30s hb2s`,
		"it gets the slots that calls leave": `
			slots 10; ~post a some 10 5s; post s stand 3; p1 404 -> sub i2; p2 i2 5 once 4.9s hb1s; p3 i1 3 30s hb2s`,
		"ack none: its pull stays open for the next, and what it has no use for is kept": `
			limits acknone; ~post s stand 4; p1 msg 1 2 -> s=1,2 | cancel s -> s=!canceled end
			p1 msg 3; return 2; post r stand 5 -> r=2,3; sub i2; p2 i2 3 30s hb2s | return 1 -> r=1 | p1 msg 4 -> r=4`,
		"ack none: what was kept takes its place in the window": `
			limits acknone; ~post a some 1 5s mb=300; cancel a -> a=!canceled
			p1 msg 1; post s stand 4 bytes=400 -> s=1; p2 i1 3 30s hb2s mb100`,
	})
}

func TestStandingBytes(t *testing.T) {
	playAll(t, map[string]string{
		"each pull asks for a quarter, where that is free": `
			post s stand 8 bytes=800 -> sub i1; p1 i1 8 30s hb2s mb200 | p1 msg 1 2 -> s=1,2; drain i1; sub i2; p2 i2 6 30s hb2s mb200
			p2 msg 3 4 -> s=3,4; drain i2; sub i3; p3 i3 4 30s hb2s mb200 | p3 msg 5 6 -> s=5,6; drain i3 | credit s 1 ->
			credit s 1 -> sub i4; p4 i4 4 30s hb2s mb200`,
		"a message that does not fit comes alone, without a limit": `
			~post s stand 8 bytes=800; p1 msg 1 -> s=1 | p1 bytes left=7 bytes=100 -> p2 i1 7 30s hb2s mb200
			p2 bytes left=7 bytes=200; credit s 1 -> p3 i1 1 30s hb2s
			credit s 0 window=300; p3 msg 3 size=9000 -> s=3 | credit s 1 bytes=9000 -> p4 i1 300 30s hb2s mb200`,
		"so does one that is over MaxRequestMaxBytes": `
			limits bytes=50; ~post s stand 9 bytes=67108864; p1 bytes left=9 -> p2 i1 1 30s hb2s | p2 msg 1 -> s=1; p3 i1 8 30s hb2s mb50`,
		"but over the user's MaxBytes is an error": `
			~post s stand 99 mb=50; p1 bytes left=99 -> p2 i1 1 30s hb2s mb50 | p2 bytes left=1 -> s=!bytes end`,
		"while it is pulled alone, nothing else is": `
			~post s stand 99 mb=50; p1 bytes left=99 -> p2 i1 1 30s hb2s mb50 | credit s 0 starving -> | p2 bytes left=1 -> s=!bytes end`,
		"promised bytes are reserved": `
			~post s stand 50 bytes=67108864; p1 batch left=10 bytes=2097152; +800ms -> @800ms sub i2; p2 i2 50 3.2s hb1.6s mb16777216`,
	})
}

// Silence means that the server has dropped a pull without a status, or that the
// connection carries nothing.
func TestSilence(t *testing.T) {
	playAll(t, map[string]string{
		"stays open; then probes: at once, then ever later, and two in doubt at most": `
			~post s stand 9; +4.1s -> @4.1s prove; s silent; sub i2; p2 i2 9 600ms | +9s -> @1.6s s silent
			answered; +3s -> prove; sub i3; p3 i3 9 600ms; @1.6s s silent | answered; +3s -> prove; sub i4; p4 i4 9 600ms; @1.6s s silent
			answered; +4s -> prove; sub i5; p5 i5 9 600ms; @1.6s s silent | answered; +5s -> prove; drain i2; sub i6; p6 i6 9 600ms; @1.6s s silent
			answered; +6s -> prove; drain i3; sub i7; p7 i7 9 600ms; @1.6s s silent
			answered; +6s -> prove; drain i4; sub i8; p8 i8 9 600ms; @1.6s s silent
			answered; +7s -> prove; drain i5; sub i9; p9 i9 9 600ms; @1.6s s silent
			answered; +6s -> prove; drain i6; sub i10; p10 i10 9 600ms; @1.6s s silent`,
		"pulls that are silent together are one silence": `
			~post s stand 9; ~p1 msg 1 2 3 4 5; ~credit s 5; ~p1 msg 6 7 8; ~p2 msg 9 10; ~credit s 5; +4.1s -> @4.1s prove; s silent; s silent; s silent
			answered -> sub i4; p4 i4 9 600ms | answered -> `,
		"a probe that is refused, or expires, is an answer": `
			~post s stand 9; +4.1s -> @4.1s prove; s silent; sub i2; p2 i2 9 600ms | p2 waiting -> s waiting
			+200ms -> @200ms p3 i2 9 600ms | +600ms; p3 408 left=9 -> s healthy; doubt; p4 i2 9 3.1s hb1.55s`,
		"what comes on an inbox that was abandoned is an answer": `
			~post s stand 9; +4.1s -> @4.1s prove; s silent; sub i2; p2 i2 9 600ms | p1 100 -> s healthy; doubt
			+600ms; p2 408 left=9 ->  | p1 msg 1 -> s=1`,
		"503: back off, probe": `
			~post s stand 9; p1 503 -> doubt; s 503 | +200ms -> @200ms p2 i1 9 600ms | p2 503 -> doubt; s 503
			+400ms -> @400ms p3 i1 9 600ms | p3 msg 1 2 3 4 5 6 7 8 9 -> s healthy; doubt; s=1,2,3,4,5,6,7,8,9`,
		"reconnected: at once, and the consumer is in doubt": `
			~post s stand 9; +5.7s -> @4.1s prove; s silent; sub i2; p2 i2 9 600ms; @5.7s s silent | down -> s lost
			down; +1m; up -> drain i1; drain i2; sub i3; p3 i3 9 600ms; doubt | up -> drain i3; sub i4; p4 i4 9 600ms; doubt | down -> s lost
			up -> drain i4; sub i5; p5 i5 9 600ms; doubt | answered ->`,
		"deleted: no more is pulled": `
			~post s stand 9; p1 deleted -> prove; doubt; s=!deleted end; drain i1 | post a some 1 5s -> | +200ms -> @200ms sub i2; p2 i2 1 now
			p2 deleted -> prove; doubt; a=!deleted; drain i2`,
		"refused for good": `
			~post s stand 9; p1 push -> s=!push end | post r stand 9; +200ms -> @200ms p2 i1 9 29.8s hb2s`,
		"over a limit: pull within the one that is read": `
			~post s stand 9; p1 limit -> doubt; s limit | limits batch=5; +200ms -> @200ms p2 i1 5 600ms
			p2 msg 1 -> s healthy; doubt; s=1 | p2 limit -> doubt; s limit | limits batch=3; +200ms -> @200ms p3 i1 3 600ms
			p3 limit -> doubt; s limit | +400ms -> @400ms p4 i1 3 600ms`,
	})
}

// An inbox that is given up stays subscribed until the consumer's server has answered a request that began later.
func TestGivenUp(t *testing.T) {
	playAll(t, map[string]string{
		"a silent pull stays open: what it brings late is welcome, and its inbox is used again": `
			~post s stand 9; +4.1s -> @4.1s prove; s silent; sub i2; p2 i2 9 600ms | +1.6s -> @1.6s s silent
			+1m; p1 msg 1 2 -> s healthy; doubt; s=1,2 | p1 100; p1 408 left=7 -> p3 i1 7 2.3s hb1.15s | answered -> prove`,
		"for as long as it can live from the answer on": `
			~post s stand 9; +4.1s -> @4.1s prove; s silent; sub i2; p2 i2 9 600ms
			~answered; +600ms; ~p2 408 left=9; ~answered; ~p3 msg 1 2 3 4 5 6 7 8 9; +30.4s -> @30.4s prove | +1ms; p1 msg 10 -> s=10
			answered -> prove | answered -> drain i1`,
		"replay policy original: for 90 s, and pulls of calls that are over too": `
			limits replay; ~post a some 1 3s; ~p1 404; ~+1.5s; ~answered; ~cancel a; +80s; post b some 1 9s -> p4 i1 1 now
			p2 msg 1 -> b=1; unsub i2 | p3 msg 2 -> nak 2; unsub i3`,
		"unless slots are needed": `
			slots 2; ~post s stand 9; +4.1s -> @4.1s prove; s silent; sub i2; p2 i2 1 600ms | post a some 1 5s -> | answered -> drain i1
			drained i1 -> sub i3; p3 i3 1 now`,
		"a call that went away hands back what comes when its pull is gone": `
			~post a fill 4 5s; ~p1 404; cancel a -> a=!canceled; prove | p2 msg 1 2 -> | answered -> drain i2; nak 1; nak 2 | p2 msg 3 -> nak 3`,
		"or gives it to the next call": `
			~post a fill 4 5s; ~p1 404; cancel a -> a=!canceled; prove | post b some 1 5s -> p3 i1 1 now | +1ms; p2 msg 1 -> b=1 | answered -> prove
			answered -> drain i2`,
		"where the server is far away, more than a round trip later, for a second": `
			~post a fill 4 5s; ~p1 404; cancel a -> a=!canceled; prove | +300ms; answered -> drain i2 | post b fill 4 5s -> p3 i1 4 now
			p3 404 -> sub i3; p4 i3 4 4.9s hb1s | cancel b -> b=!canceled; prove | +200ms; p4 msg 1; answered -> prove
			+900ms; p4 msg 2 -> | answered -> drain i3; nak 1; nak 2`,
		"a request that began before does not count": `
			~post a some 1 5s; ~p1 404; ~post b some 1 5s; ~p3 404; cancel a -> a=!canceled; prove | +1ms; cancel b -> b=!canceled
			answered -> prove; drain i2 | answered -> drain i3`,
		"nor does the first after a stall": `
			~post a some 1 5s; ~p1 404; cancel a -> a=!canceled; prove | +501ms; answered -> prove | p2 msg 1 -> drain i2; nak 1 | answered ->`,
		"nor is it awaited for ever": `
			~post a some 1 5s; ~p1 404; cancel a -> a=!canceled; prove | +89.999s -> | +1ms -> @1ms drain i2 | answered ->`,
		"a message waits for the inboxes that were given up before it, and for no others": `
			~post a fill 2 5s; ~p1 404; post b fill 2 5s g=x; p3 404 -> p3 i1 2 now g=x; sub i3; p4 i3 2 4.9s hb1s g=x
			cancel a -> a=!canceled; prove | p2 msg 1 -> | +1ms; cancel b -> b=!canceled | answered -> prove; drain i2; nak 1
			p4 msg 5 -> | answered -> drain i3; nak 5`,
		"close": `
			~post a fill 4 5s; ~p1 404; cancel a; p2 msg 1 -> a=!canceled; prove | answered; limits batch=9 -> drain i2; nak 1
			post b fill 4 5s -> p3 i1 4 now | p3 404 -> sub i3; p4 i3 4 4.9s hb1s | cancel b; p4 msg 2 -> b=!canceled; prove
			close -> drain i3; nak 2; unsub i1`,
	})
}

func TestPins(t *testing.T) {
	playAll(t, map[string]string{
		"pulled for three times per priority timeout, with a full window too": `
			limits pinned ttl=6s; post s stand 1 g=g -> sub i1; p1 i1 1 2s hb1s g=g | p1 msg 1 pin=x -> pin x; s=1
			+2s -> @2s p2 i1 1 2s hb1s mb1 g=g id=x
			+1.9s; p2 408 left=1; +2.1s -> @100ms p3 i1 1 2s hb1s mb1 g=g id=x; @2.1s sub i2; p4 i2 1 2s hb1s mb1 g=g id=x`,
		"and with a full byte window, by a pull that brings nothing": `
			limits pinned ttl=6s; ~post s stand 9 g=g bytes=100; p1 msg 1 pin=x -> pin x; s=1; drain i1
			+2s -> @2s sub i2; p2 i2 8 2s hb1s mb1 g=g id=x | p2 bytes left=8; +2s -> @2s p3 i2 8 2s hb1s mb1 g=g id=x
			+1.9s; p3 408 left=8; credit s 1 -> p4 i2 9 2s hb1s mb25 g=g id=x`,
		"as soon as calls leave slots": `
			limits pinned ttl=6s; slots 4; ~post s stand 2 g=g; p1 msg 1 2 pin=x -> pin x; s=1,2
			post a some 9 9s -> p2 i1 4 now | +2s -> @1s prove; prove; drain i1
			drained i1 -> sub i2; p3 i2 1 2s hb1s mb1 g=g id=x; sub i3; p4 i3 2 once 6.9s hb1s`,
		"replaced": `
			limits pinned ttl=1m; ~post s stand 4 g=g; p1 msg 1 pin=x -> pin x; s=1 | p1 msg 2 pin=x -> s=2
			p1 msg 3 pin=y -> unpin x; pin y; s=3 | credit s 3 -> sub i2; p2 i2 3 20s hb2s g=g id=y | givenup x g=g; givenup y g=g -> unpin y
			p2 msg 4 pin=y -> s=4 | p2 msg 5 pin=z -> pin z; prove; s=5; drain i1`,
		"a pin is gained before its messages leave, with those before them too": `
			limits pinned ttl=1m; ~post s stand 4 g=g; p1 msg 1 - 2 pin=x -> pin x; s=1,2 | p1 msg 3 - 4 pin=y -> unpin x; pin y; s=3,4`,
		"lost by a 423 for the current id": `
			limits pinned; ~post a some 1 5s g=g; p1 423; +200ms -> @200ms p2 i1 1 now g=g | p2 msg 1 pin=x -> pin x; a=1
			post b some 1 5s g=g -> p3 i1 1 now g=g id=x | p3 423 -> unpin x; p4 i1 1 now g=g`,
		"and by no other": `
			limits pinned; ~post s stand 4 g=g; p1 msg 1 2 pin=x -> pin x; s=1,2 | credit s 2 -> sub i2; p2 i2 2 30s hb2s g=g id=x
			p1 msg 3 pin=y -> unpin x; pin y; prove; s=3; sub i3; p3 i3 2 30s hb2s g=g id=y; drain i2
			p2 423 -> | p1 423; p3 423 -> unpin y; p4 i3 3 30s hb2s g=g`,
		"lost with the leader": `
			limits pinned ttl=1m; ~post s stand 4 g=g; p1 msg 1 pin=x -> pin x; s=1 | p1 leader -> unpin x; prove; s leader; drain i1
			+200ms -> @200ms sub i2; p2 i2 3 600ms g=g`,
		"no pull overtakes the message that brings it": `
			limits pinned batch=2; ~post s stand 9 g=g; p1 batch left=1; p1 msg 1 pin=x -> pin x; s=1; p2 i1 2 30s hb2s g=g id=x`,
		"unless that is lost": `
			limits pinned batch=2; ~post s stand 9 g=g; p1 batch left=1; +800ms -> @800ms sub i2; p2 i2 2 3.2s hb1.6s g=g`,
	})
}
