package service

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// refusedFor is how long a refusal is reported. The system retries sooner, so the report ends a minute after the permission was granted.
const refusedFor = time.Minute

// violation matches the operation and the subject in an error of nats-server.
var violation = regexp.MustCompile(`(Publish|Subscription) to "([^"]*)"`)

// Permissions records operations that the server refuses because the connection's user lacks a permission.
type Permissions struct {
	mu      sync.Mutex
	refused map[string]time.Time // time of the last refusal, by operation and subject
}

// Watch is an option for the connection to watch. The error handler of earlier options is still called.
func (p *Permissions) Watch(o *nats.Options) error {
	handle := o.AsyncErrorCB
	o.AsyncErrorCB = func(nc *nats.Conn, sub *nats.Subscription, err error) {
		p.note(err, time.Now())
		if handle != nil {
			handle(nc, sub, err)
		}
	}
	return nil
}

func (p *Permissions) note(err error, now time.Time) {
	found := violation.FindStringSubmatch(fmt.Sprint(err))
	if found == nil || !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused == nil {
		p.refused = map[string]time.Time{}
	}
	p.refused[found[1]+" to "+withoutNames(found[2])] = now
}

// withoutNames returns a subject without the names of messages, channels and receivers, because anybody may ask whether a system is ready. API
// subjects have the operation and the stream in their first six tokens.
func withoutNames(subject string) string {
	most := 2
	if strings.HasPrefix(subject, "$JS.") {
		most = 6
	}
	if tokens := strings.Split(subject, "."); len(tokens) > most {
		return strings.Join(tokens[:most], ".") + ".>"
	}
	return subject
}

// Err returns the answer of /readyz, an error that names the operations that the server refused within the last minute, or nil.
func (p *Permissions) Err() error { return p.err(time.Now()) }

func (p *Permissions) err(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.refused, func(_ string, last time.Time) bool { return now.Sub(last) > refusedFor })
	if len(p.refused) == 0 {
		return nil
	}
	return httpserve.Refuse(http.StatusServiceUnavailable, "unavailable", "the user of the NATS server lacks a permission: %s",
		strings.Join(slices.Sorted(maps.Keys(p.refused)), ", "))
}
