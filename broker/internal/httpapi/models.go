package httpapi

import (
	"net/http"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

type channelModel struct {
	domain.Stakeholder
	ConsumersURL      string
	MessagesURL       string
	BroadcastURL      string
	MessagesStatusURL string
}

type accessModel struct {
	domain.Stakeholder
	Role  string
	Token string `json:",omitempty"`
}

type consumerModel struct {
	domain.Consumer
	DeadLetterQueueURL string
	Signed             bool `json:",omitempty"`
	State              string
	PausedAt           time.Time `json:",omitzero"`
	PausedBy           string    `json:",omitempty"`
	Breaker            string    `json:",omitempty"`
}

func modelOfChannel(c domain.Channel) channelModel {
	url := link("channel", c.ID)
	return channelModel{c.Stakeholder, url + "/consumers", url + "/messages", url + "/broadcast", url + "/messages-status"}
}

func modelOfAccess(t domain.AccessToken) accessModel {
	return accessModel{t.Stakeholder, t.Role.String(), t.Token}
}

func (a *API) modelOfConsumer(r *http.Request, c domain.Consumer) any {
	m := consumerModel{
		Consumer: c, DeadLetterQueueURL: link("channel", c.Channel, "consumer", c.ID, "dlq"), Signed: c.SigningSecret != "",
		State: "active", PausedAt: c.Pause.At, PausedBy: c.Pause.Reason, Breaker: string(a.b.Dispatch.Breaker(r.Context(), c)),
	}
	m.CallbackURL = a.shownURL(r, c.CallbackURL)
	if c.Paused() {
		m.State = "paused"
	}
	return m
}
