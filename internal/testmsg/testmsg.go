// Package testmsg lets package jetpulltest create messages without a server. Only the root package can create them. It sets the functions of this
// package.
package testmsg

// Recorder records what a message would send to the server. confirmed reports whether the caller waits for an answer.
type Recorder interface {
	Sent(body []byte, confirmed bool)
}

var (
	// New returns a *jetpull.Msg that sends its acknowledgements to r.
	New func(subject, reply string, header map[string][]string, data []byte, r Recorder) any
	// RecorderOf returns the recorder of a *jetpull.Msg, or nil if a server delivered it.
	RecorderOf func(m any) Recorder
)
