// Package testmsg is how package jetpulltest makes messages without a server: only the root package can, and it
// fills in the functions here.
package testmsg

// Recorder gets what a message would send to the server. confirmed says that the caller waits for an answer.
type Recorder interface {
	Sent(body []byte, confirmed bool)
}

var (
	// New returns a *jetpull.Msg that sends its acknowledgements to r.
	New func(subject, reply string, header map[string][]string, data []byte, r Recorder) any
	// RecorderOf returns the recorder of a *jetpull.Msg; nil: it was delivered by a server.
	RecorderOf func(m any) Recorder
)
