package natstest

import "time"

// Constants of nats-server 2.15.2: its version, defaults and wire formats. They are copied here so that neither the
// peer nor the model needs the server's module. A test in module test compares each with the server.
const (
	ServerVersion  = "2.15.2"
	ServerAPILevel = 5

	GlobalAccount       = "$G"
	HeaderRequiredLevel = "Nats-Required-Api-Level"

	DefaultAckWait       = 30 * time.Second
	DefaultMaxAckPending = 1000
	DefaultMaxWaiting    = 512
	DefaultPinnedTTL     = 2 * time.Minute

	AckAck      = "+ACK"
	AckOK       = "+OK"
	AckNak      = "-NAK"
	AckProgress = "+WPI"
	AckTerm     = "+TERM"

	PinnedSubject     = "$JS.EVENT.ADVISORY.CONSUMER.PINNED"
	UnpinnedSubject   = "$JS.EVENT.ADVISORY.CONSUMER.UNPINNED"
	PinnedType        = "io.nats.jetstream.advisory.v1.consumer_group_pinned"
	UnpinnedType      = "io.nats.jetstream.advisory.v1.consumer_group_unpinned"
	UnpinResponseType = "io.nats.jetstream.api.v1.consumer_unpin_response"
)

// NakOptions is the JSON after -NAK.
type NakOptions struct {
	Delay time.Duration `json:"delay"`
}

// Event contains the common fields of advisories.
type Event struct {
	Type string    `json:"type"`
	ID   string    `json:"id"`
	Time time.Time `json:"timestamp"`
}

// PinnedAdvisory reports that a client of a priority group was pinned.
type PinnedAdvisory struct {
	Event
	Account  string `json:"account,omitempty"`
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	Domain   string `json:"domain,omitempty"`
	Group    string `json:"group"`
	PinnedID string `json:"pinned_id"`
}

// UnpinnedAdvisory reports that a client lost the pin. Reason is "admin" or "timeout".
type UnpinnedAdvisory struct {
	Event
	Account  string `json:"account,omitempty"`
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	Domain   string `json:"domain,omitempty"`
	Group    string `json:"group"`
	Reason   string `json:"reason"`
}

// UnpinRequest is a request to take the pin of a group.
type UnpinRequest struct {
	Group string `json:"group"`
}

// UnpinResponse is the response to an UnpinRequest.
type UnpinResponse struct {
	Type string `json:"type"`
}
