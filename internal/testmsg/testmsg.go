// Package testmsg lets package jetpulltest make messages without a server. Only the root package can make them. It
// sets the functions of this package.
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
