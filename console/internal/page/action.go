package page

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
)

// Problem explains to the operator why a page or an action is refused.
type Problem struct {
	Status int
	// Text is the problem, and Fix what to do about it.
	Text, Fix string
	Err       error
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Err != nil {
		return p.Text + ": " + p.Err.Error()
	}
	return p.Text
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

func notFound(fix, format string, args ...any) error {
	return &Problem{Status: http.StatusNotFound, Text: fmt.Sprintf(format, args...), Fix: fix}
}

func invalid(fix, format string, args ...any) error {
	return &Problem{Status: http.StatusBadRequest, Text: fmt.Sprintf(format, args...), Fix: fix}
}

// impossible returns the Problem of an action that is not possible in the current state of its object.
func impossible(fix, format string, args ...any) error {
	return &Problem{Status: http.StatusConflict, Text: fmt.Sprintf(format, args...), Fix: fix}
}

// unavailable returns the Problem of a source that does not answer, or refuses. The text has no full stop, because the error follows it.
func unavailable(err error, fix, format string, args ...any) error {
	return &Problem{Status: http.StatusBadGateway, Text: fmt.Sprintf(format, args...), Err: err, Fix: fix}
}

// act returns do, with its errors made readable: refused converts an error that is not a [Problem].
func act(refused func(error) error, do view.Do) view.Do {
	return func(ctx context.Context, form url.Values) (view.Outcome, error) {
		outcome, err := do(ctx, form)
		if err == nil {
			return outcome, nil
		}
		if _, ok := errors.AsType[*Problem](err); !ok {
			err = refused(err)
		}
		return view.Outcome{}, err
	}
}

// done returns the outcome of an action on one object.
func done(text string) view.Outcome { return view.Outcome{Count: 1, Text: text} }

// systemRefused returns a function that explains why a system refused an action.
func systemRefused(system string) func(error) error {
	return func(err error) error {
		return unavailable(err, "Look at the state before you try again.",
			"The %s did not do this. Nothing was changed, unless the answer was lost", system)
	}
}

// notShown returns why a system does not show an object: it does not exist, or the system does not answer.
func notShown(system string, err error, fix, format string, args ...any) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, feed.ErrNotFound) {
		return &Problem{Status: http.StatusNotFound, Text: "The " + system + " has no " + fmt.Sprintf(format, args...), Err: err, Fix: fix}
	}
	return unavailable(err, "Try again. If it stays so, look at the "+system+".", "The %s %s", system, view.Source{}.Away(err).Does())
}

// rateField returns the field for the maximum rate of an operation.
func rateField(usual string) view.Field {
	return view.Field{Name: "rate", Label: "At most in a second (empty: " + usual + ")", Type: "number"}
}

func parseRate(text string) (float64, error) {
	if strings.TrimSpace(text) == "" {
		return 0, nil
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(rate > 0) || rate > 1e6 {
		return 0, invalid("Give a number above 0, such as 100, or leave it empty.", "%q is no rate.", text)
	}
	return rate, nil
}
