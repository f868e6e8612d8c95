package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// maxBody bounds the body of a request from the relay, in bytes.
const maxBody = 16 << 20

// ErrSignature means that a request has no valid signature of the relay.
var ErrSignature = errors.New("relay: the signature is not valid")

// Verifier checks the Standard Webhooks signatures of the relay's requests.
type Verifier struct{ secrets []*standardwebhooks.Webhook }

// NewVerifier returns a Verifier that accepts a signature with any of the secrets. It needs at least one. Each secret is whsec_ and base64.
func NewVerifier(secrets ...string) (*Verifier, error) {
	v := &Verifier{}
	for i, secret := range secrets {
		one, err := standardwebhooks.NewWebhook(secret)
		if err != nil || strings.TrimPrefix(secret, "whsec_") == "" {
			return nil, fmt.Errorf("relay: secret number %d is not whsec_ and base64", i+1)
		}
		v.secrets = append(v.secrets, one)
	}
	if len(v.secrets) == 0 {
		return nil, errors.New("relay: no secret was given")
	}
	return v, nil
}

// Verify returns [ErrSignature] unless the body is signed with one of the secrets and the signature's time is within 5 minutes of the local clock.
func (v *Verifier) Verify(h http.Header, body []byte) (err error) {
	for _, secret := range v.secrets {
		if err = secret.Verify(body, h); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %w", ErrSignature, err)
}

// Delivery is a message that the relay delivers to a receiver.
type Delivery struct {
	Source  string
	ID      string
	Attempt int // the number of the POST, from 1
	Header  http.Header
	Payload []byte
}

// Receiver is the http.Handler of a receiver that responds later. It answers a POST with 202 when Accept has returned nil, and a GET with the
// response to a message.
type Receiver struct {
	// Verifier checks signatures. If it is nil, signatures are not checked.
	Verifier *Verifier
	// Accept stores a message. It must do so before it returns nil, because the relay does not send the message again after that. After an error, the
	// answer is 500, and the relay tries again. The relay may repeat an accepted message. Then Accept must return nil and do nothing.
	Accept func(ctx context.Context, d Delivery) error
	// Result returns the response to a message. known is false for a message that Accept has not stored. response is nil until there is a response,
	// which is encoded as JSON.
	Result func(ctx context.Context, source, id string) (response any, known bool, err error)
}

// StatusPath is appended to the URL of a [Receiver] to get the receiver's status_endpoint.
const StatusPath = "?source={source_id}&message={message_id}"

// ServeHTTP implements http.Handler.
func (h *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, ok := readSigned(w, r, h.Verifier)
	if !ok {
		return
	}
	if r.Method == http.MethodGet {
		h.status(w, r)
		return
	}
	d := Delivery{Header: r.Header, Payload: body}
	var err error
	if d.Source, d.ID, err = splitID(r.Header.Get("Webhook-Id")); err == nil {
		d.Attempt, err = strconv.Atoi(r.Header.Get("Relay-Attempt"))
	}
	if err != nil {
		http.Error(w, "not a message of a relay: "+err.Error(), http.StatusBadRequest)
		return
	}
	if err := h.Accept(r.Context(), d); err != nil {
		http.Error(w, "not accepted", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (h *Receiver) status(w http.ResponseWriter, r *http.Request) {
	source, id := r.URL.Query().Get("source"), r.URL.Query().Get("message")
	if h.Verifier != nil {
		// The signature covers the ID in the header, not the query.
		if ofSource, ofID, err := splitID(r.Header.Get("Webhook-Id")); err != nil || ofSource != source || ofID != id {
			http.Error(w, "signed for another message", http.StatusUnauthorized)
			return
		}
	}
	response, known, err := h.Result(r.Context(), source, id)
	switch {
	case err != nil:
		http.Error(w, "try again", http.StatusInternalServerError)
	case !known:
		http.Error(w, "never seen", http.StatusNotFound)
	case response == nil:
		w.WriteHeader(http.StatusAccepted)
	default:
		httpserve.WriteJSON(w, http.StatusOK, response)
	}
}

func splitID(webhookID string) (source, id string, err error) {
	source, id, ok := strings.Cut(webhookID, "/")
	if !ok {
		return "", "", fmt.Errorf("webhook-id %q has no message ID", webhookID)
	}
	if source, err = url.PathUnescape(source); err != nil {
		return "", "", err
	}
	id, err = url.PathUnescape(id)
	return source, id, err
}

// readSigned reads the body of a signed request. It returns false if it has answered the request with an error.
func readSigned(w http.ResponseWriter, r *http.Request, v *Verifier) ([]byte, bool) {
	if r.Method != http.MethodPost && r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "GET or POST", http.StatusMethodNotAllowed)
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body is too large or broke off", http.StatusRequestEntityTooLarge)
		return nil, false
	}
	if v != nil {
		if err := v.Verify(r.Header, body); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return nil, false
		}
	}
	return body, true
}

// Callback is the http.Handler of a sender's callback_endpoint.
type Callback struct {
	// Verifier checks signatures. If it is nil, signatures are not checked.
	Verifier *Verifier
	// Handle handles the result of a message. After an error, the answer is 500, and the relay repeats the request. It also repeats a request whose
	// answer was lost, with the same webhook-id. Then Handle must return nil and do nothing.
	Handle func(ctx context.Context, r Result) error
}

// ServeHTTP implements http.Handler.
func (h *Callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, ok := readSigned(w, r, h.Verifier)
	if !ok {
		return
	}
	var result Result
	if err := json.Unmarshal(body, &result); err != nil || result.Source == "" || result.ID == "" {
		http.Error(w, "not a callback of a relay", http.StatusBadRequest)
		return
	}
	if err := h.Handle(r.Context(), result); err != nil {
		http.Error(w, "not handled", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
