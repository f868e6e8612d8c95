package httpapi

import (
	"net/http"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/work"
)

type objectModel struct {
	ID        string
	Name      string
	Token     string
	ChangedAt time.Time
}

func modelOf(s domain.Stakeholder) objectModel {
	return objectModel{s.ID, s.Name, s.Token, s.ChangedAt}
}

type channelModel struct {
	objectModel
	ConsumersURL      string
	MessagesURL       string
	BroadcastURL      string
	MessagesStatusURL string
}

type accessModel struct {
	objectModel
	Role  string
	Token string `json:",omitempty"`
}

type consumerModel struct {
	objectModel
	CallbackURL        string
	Type               domain.ConsumerType
	Concurrency        int     `json:",omitempty"`
	RateLimit          float64 `json:",omitempty"`
	EventTypes         string  `json:",omitempty"`
	DeadLetterQueueURL string
	Signed             bool              `json:",omitempty"`
	Headers            map[string]string `json:",omitempty"` // without their values
	stateModel
}

type stateModel struct {
	State    string
	PausedAt time.Time `json:",omitzero"`
	PausedBy string    `json:",omitempty"`
	work.ReceiverState
}

func modelOfAccess(t domain.AccessToken) accessModel {
	return accessModel{modelOf(t.Stakeholder), t.Role.String(), t.Token}
}

func (a *API) modelOfConsumer(r *http.Request, c domain.Consumer) any {
	m := consumerModel{
		objectModel: modelOf(c.Stakeholder), CallbackURL: a.shownURL(r, c.CallbackURL), Type: c.Type,
		Concurrency: c.Concurrency, RateLimit: c.RateLimit, EventTypes: c.EventTypes,
		DeadLetterQueueURL: link(r, "channel", c.Channel, "consumer", c.ID, "dlq"), Signed: c.SigningSecret != "",
		stateModel: stateOf(a.b.Dispatch, c), Headers: map[string]string{},
	}
	for name := range c.Headers {
		m.Headers[name] = "…"
	}
	return m
}

func stateOf(d *work.Dispatch, c domain.Consumer) stateModel {
	s := stateModel{"active", c.Pause.At, c.Pause.Reason, d.State(c)}
	if c.Paused() {
		s.State = "paused"
	}
	return s
}
