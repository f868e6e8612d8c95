package jetpull

import (
	"testing"

	"github.com/jetpull/jetpull/internal/testmsg"
	"github.com/jetpull/jetpull/internal/worker"
)

// sending notes what is known of a message while its acknowledgement is sent.
type sending struct {
	m   *Msg
	how worker.Settlement
}

func (s *sending) Sent([]byte, bool) { s.how = worker.Settlement(s.m.how.Load()) }

// TestHandBackIsKnownBeforeItIsSent: the redelivery of a message that was handed back can be here before the call that
// handed it back has returned. If that were not known by then, it would be taken for a copy of the message that is held,
// and nobody would handle it until AckWait has passed.
func TestHandBackIsKnownBeforeItIsSent(t *testing.T) {
	for name, handBack := range map[string]func(*Msg) error{
		"Nak":          (*Msg).Nak,
		"NakWithDelay": func(m *Msg) error { return m.NakWithDelay(1) },
	} {
		s := &sending{}
		s.m = testmsg.New("a", "", nil, nil, s).(*Msg)
		if err := handBack(s.m); err != nil || s.how != worker.Naked {
			t.Errorf("%s: settled as %v while it was sent, error %v", name, s.how, err)
		}
	}
}
