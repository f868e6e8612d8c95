package pull

import (
	"errors"
	"fmt"

	"github.com/jetpull/jetpull/internal/wire"
)

// The reasons for which a demand ends, or a pull of a standing demand fails. The root package turns them into its
// public errors.
var (
	ErrEmpty  = errors.New("no messages")
	ErrSilent = errors.New("the server did not answer the pull, or stopped in the middle: check the link to the consumer's server; if another " +
		"account exports the stream's API, it needs response_type stream")
	ErrLost = errors.New("the connection was lost while the pull was open")
)

// Timeout says that a demand's deadline has passed, or that its caller has left.
type Timeout struct {
	Cause error // the last problem; nil: there was none
}

func (t *Timeout) Error() string { return "timeout" }

// Refused is a status that ended a pull.
type Refused struct{ Status wire.Status }

func (r *Refused) Error() string {
	return fmt.Sprintf("status %d %s", r.Status.Code, r.Status.Description)
}
