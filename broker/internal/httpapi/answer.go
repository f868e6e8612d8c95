package httpapi

import (
	"errors"
	"net/http"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// Texts of the contract.
const (
	textNotFound           = "Request resource not found"
	textUnsupportedMedia   = "Media type not supported"
	textNoCondition        = "Bad Request: Update is missing `If-Unmodified-Since` header "
	textPreconditionFailed = "Precondition Failed"
	textChannelToken       = "channel token does not match"
	textConsumerToken      = "consumer token does not match"
	textProducerToken      = "producer token does not match"
	textNoProducer         = "producer could not be found"
	textNoConsumer         = "consumer could not be found"
	textNoJob              = "job could not be found"
	textNotPull            = "consumer not pull based"
	textQueryParameter     = "invalid query parameter"
	textRequeueToken       = "`requeue` form param must match consumer token"
	textScheduleFormat     = "invalid date format for X-Broker-Scheduled-For, expected ISO-8601/RFC3339 format"
)

// refuse makes an answer that is no success.
func refuse(status int, text string) error { return &httpserve.Error{Status: status, Message: text} }

var errNotFound = refuse(http.StatusNotFound, textNotFound)

// known are the answers to the errors of the domain.
var known = []httpserve.Known{
	{Err: domain.ErrDuplicateMessage, Status: http.StatusConflict},
	{Err: domain.ErrDuplicateScheduled, Status: http.StatusConflict},
	{Err: domain.ErrClaimLost, Status: http.StatusConflict},
	{Err: domain.ErrConflict, Status: http.StatusConflict},
	{Err: domain.ErrRetriesLeft, Status: http.StatusNotFound},
	{Err: domain.ErrInvalidTransition, Status: http.StatusBadRequest},
	{Err: domain.ErrTimeoutWithInvalidState, Status: http.StatusBadRequest},
	{Err: domain.ErrInvalid, Status: http.StatusBadRequest},
	{Err: domain.ErrTooLarge, Status: http.StatusRequestEntityTooLarge},
	{Err: domain.ErrNotFound, Status: http.StatusNotFound, Message: textNotFound},
	{Err: domain.ErrStoreFull, Status: http.StatusServiceUnavailable, Message: "the store is full: work jobs off or try again later"},
	{Err: domain.ErrUnavailable, Status: http.StatusServiceUnavailable, Message: "the store is not available, try again"},
}

// describe finds the answer to an error, in the texts of the contract.
func describe(err error) *httpserve.Error {
	e := httpserve.Describe(err, known)
	switch {
	case errors.Is(err, httpserve.ErrNoRoute):
		return &httpserve.Error{Status: e.Status, Message: textNotFound}
	case e.Status == http.StatusMethodNotAllowed:
		return &httpserve.Error{Status: e.Status, Message: "Method Not Allowed", Header: e.Header}
	}
	return e
}

func writeJSON(w http.ResponseWriter, value any) { httpserve.WriteJSON(w, http.StatusOK, value) }

// done answers with a status alone, unless there is an error.
func done(w http.ResponseWriter, status int, err error) error {
	if err == nil {
		w.WriteHeader(status)
	}
	return err
}
