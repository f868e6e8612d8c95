package httpapi

import (
	"net/http"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

type stakeholderModel struct {
	ID        string
	Name      string
	Token     string
	ChangedAt time.Time
}

type channelModel struct {
	stakeholderModel
	ConsumersURL      string
	MessagesURL       string
	BroadcastURL      string
	MessagesStatusURL string
}

type accessModel struct {
	stakeholderModel
	Role  string
	Token string `json:",omitempty"`
}

type consumerModel struct {
	stakeholderModel
	CallbackURL        string
	DeadLetterQueueURL string
	Type               string
	Concurrency        int     `json:",omitempty"`
	RateLimit          float64 `json:",omitempty"`
	Signed             bool    `json:",omitempty"`
	State              string
	PausedAt           time.Time `json:",omitzero"`
	PausedBy           string    `json:",omitempty"`
	Breaker            string    `json:",omitempty"`
	FailingSince       time.Time `json:",omitzero"`
	EventTypes         string    `json:",omitempty"`
}

func modelOf(s domain.Stakeholder) stakeholderModel {
	return stakeholderModel{s.ID, s.Name, s.Token, s.ChangedAt}
}

func modelOfAccess(t domain.AccessToken) accessModel {
	return accessModel{modelOf(t.Stakeholder), t.Role.String(), t.Token}
}

func modelOfChannel(c domain.Channel) channelModel {
	url := link("channel", c.ID)
	return channelModel{modelOf(c.Stakeholder), url + "/consumers", url + "/messages", url + "/broadcast", url + "/messages-status"}
}

func (a *API) modelOfConsumer(r *http.Request, c domain.Consumer) any {
	m := consumerModel{
		stakeholderModel: modelOf(c.Stakeholder), CallbackURL: a.shownURL(r, c.CallbackURL),
		DeadLetterQueueURL: link("channel", c.Channel, "consumer", c.ID, "dlq"), Type: string(c.Type),
		Concurrency: c.Concurrency, RateLimit: c.RateLimit, Signed: c.SigningSecret != "", EventTypes: c.EventTypes,
		State: "active", PausedAt: c.Pause.At, PausedBy: c.Pause.Reason, FailingSince: c.FailingSince,
		Breaker: string(a.b.Dispatch.Breaker(r.Context(), c)),
	}
	if c.Paused() {
		m.State = "paused"
	}
	return m
}
