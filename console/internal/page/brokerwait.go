package page

import (
	"cmp"

	"github.com/jetpull/jetpull/console/internal/view"
)

// waitReasons are the reasons why a callback waits, as the broker names them.
var waitReasons = map[string]string{
	"pause": "it is paused", "breaker": "the circuit breaker is open", "hold": "the receiver has asked for a pause",
	"rate": "the rate limit is reached", "concurrency": "as many as allowed are in progress", "store": "its outcome could not be stored",
}

// waits is why the next callback waits, and until when if that is known.
func (s *brokerState) waits() view.Value {
	if s.WaitingFor == "" {
		return view.None("Nothing delays it, as far as this broker knows")
	}
	text := "waits: " + cmp.Or(waitReasons[s.WaitingFor], s.WaitingFor)
	if !s.WaitingUntil.IsZero() {
		text += ", until " + view.At(s.WaitingUntil)
	}
	return view.Text(text)
}
