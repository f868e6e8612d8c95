package embedtest_test

import (
	"testing"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed/embedtest"
)

// A test gets a server with a stream and a consumer. All of it ends with the test.
func ExampleStart() {
	_ = func(t *testing.T) {
		env := embedtest.Start(t, "orders.>")
		if _, err := env.JS.Publish(t.Context(), "orders.new", []byte("two chairs")); err != nil {
			t.Fatal(err)
		}
		sub, err := jetpull.Subscribe(t.Context(), env.JS, env.Stream, env.Consumer)
		if err != nil {
			t.Fatal(err)
		}
		m, err := sub.Next(t.Context())
		if err != nil || string(m.Data()) != "two chairs" {
			t.Fatal(m, err)
		}
	}
}
