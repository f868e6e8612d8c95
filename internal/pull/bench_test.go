package pull

import "testing"

// BenchmarkMessage is a message of the open pull of the only standing demand, with the credit and the pulls that it leads to.
func BenchmarkMessage(b *testing.B) {
	e := New("b", Limits{}, 4064, 1)
	d := &Demand{}
	d.Mode, d.Window = Standing, 512
	e.Post(0, d)
	var open []*Inbox
	var done []Effect
	work := func() {
		for done = e.Effects(done); len(done) > 0; done = e.Effects(done) {
			for i := range done {
				if done[i].Kind == Send {
					open = append(open, done[i].Inbox)
				}
			}
		}
	}
	work()
	var m Message = message(1)
	for n := 1; b.Loop(); n++ {
		ib := open[0]
		e.Message(0, ib, m, 100, "")
		if ib.pull == nil {
			open = open[1:]
		}
		if n%128 == 0 || len(open) == 0 {
			work()
			e.Credit(0, d, Credit{N: d.stand.held, Bytes: d.stand.heldBytes, Window: 512})
			work()
		}
	}
}
