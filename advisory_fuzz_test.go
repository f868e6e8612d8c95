package jetpull

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// FuzzAdvisory reads whatever is published on an advisory subject.
func FuzzAdvisory(f *testing.F) {
	f.Add(pinnedAdvisory+"S.C", []byte(`{"timestamp":"2026-11-20T10:00:00Z","stream":"S","consumer":"C","group":"g","pinned_id":"x"}`))
	f.Add(unpinnedAdvisory+"S.C", []byte(`{"reason":"admin"}`))
	f.Add("", []byte(`null`))
	f.Fuzz(func(t *testing.T, subject string, body []byte) {
		a, err := parseAdvisory(&nats.Msg{Subject: subject, Data: body})
		switch {
		case err != nil && a != (PinAdvisory{}):
			t.Fatalf("%q became both %+v and %v", body, a, err)
		case err == nil && !json.Valid(body):
			t.Fatalf("%q is no JSON and became %+v", body, a)
		case err == nil && a.Pinned != strings.HasPrefix(subject, pinnedAdvisory):
			t.Fatalf("%q: pinned %t", subject, a.Pinned)
		}
	})
}
