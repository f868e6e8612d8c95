package measure

import (
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/mask"
)

// Link is a connection to the server. Each turn has a connection of its own, with the options of the link's.
type Link struct{ jetstream.JetStream }

// Links are the ways to one server.
type Links struct {
	Direct  Link
	Delayed Link // the slow link, for cases that want it
}

// Close closes the connections that there are.
func (l Links) Close() {
	for _, link := range []Link{l.Direct, l.Delayed} {
		if link.JetStream != nil {
			link.Conn().Close()
		}
	}
}

func (l Links) of(t *Turn) Link {
	if t.Delayed {
		return l.Delayed
	}
	return l.Direct
}

// again makes one more connection like the link's, which may have its own users, certificates and JetStream domain.
func (l Link) again(name string, opts ...nats.Option) (jetstream.JetStream, error) {
	o := l.Conn().Opts
	for _, set := range slices.Concat(opts, []nats.Option{nats.Name(name)}) {
		if err := set(&o); err != nil {
			return nil, err
		}
	}
	conn, err := o.Connect()
	if err != nil {
		return nil, fmt.Errorf("connect to %s again: %w", mask.URL(l.Conn().ConnectedUrl()), err)
	}
	return jetstream.New(conn, func(o *jetstream.JetStreamOptions) error {
		*o = l.Options()
		return nil
	})
}
