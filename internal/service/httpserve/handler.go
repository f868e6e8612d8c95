package httpserve

import "net/http"

// Handler answers a request, or returns what went wrong.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Show makes a handler of a function that returns what is shown as JSON.
func Show(show func(*http.Request) (any, error)) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		value, err := show(r)
		if err == nil {
			WriteJSON(w, http.StatusOK, value)
		}
		return err
	}
}

// With makes a handler of one that gets what a request names, once that is found.
func With[T any](find func(*http.Request) (T, error), handle func(http.ResponseWriter, *http.Request, T) error) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		found, err := find(r)
		if err != nil {
			return err
		}
		return handle(w, r, found)
	}
}

// ShowOf is Show of what a request names.
func ShowOf[T any](find func(*http.Request) (T, error), show func(*http.Request, T) (any, error)) Handler {
	return With(find, func(w http.ResponseWriter, r *http.Request, found T) error {
		return Show(func(r *http.Request) (any, error) { return show(r, found) })(w, r)
	})
}
