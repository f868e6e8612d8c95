package page

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
)

// schedule is a broker with a number of scheduled messages, in pages of 25. Like the broker, it has a link to the next page below each message.
type schedule struct {
	BrokerSource
	n int
}

func (s schedule) Call(_ context.Context, _, path string, _, answer any) error {
	u, err := url.Parse(path)
	if err != nil || u.Path != "/channel/orders/scheduled-messages" {
		return json.Unmarshal([]byte(`{}`), answer)
	}
	var page struct {
		Result []string          `json:"result"`
		Pages  map[string]string `json:"pages"`
	}
	from := 0
	_, _ = fmt.Sscan(u.Query().Get("next"), &from) // without it, the list begins
	for ; from < s.n && len(page.Result) < 25; from++ {
		page.Result = append(page.Result, fmt.Sprint("/channel/orders/scheduled-message/", from))
		page.Pages = map[string]string{"next": fmt.Sprint(u.Path, "?status=101&next=", from+1)}
	}
	data, err := json.Marshal(page)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, answer)
}

// The list of scheduled messages has no link to a page without messages.
func TestScheduledMessages(t *testing.T) {
	for n, pages := range map[int]int{0: 1, 1: 1, 24: 1, 25: 1, 26: 2, 50: 2, 60: 3} {
		s := sample.New()
		channel := NewBroker(s, schedule{n: n}, operation.NewRunner(slog.New(slog.DiscardHandler)), NewMarks()).Pages["channel"]
		q, found, seen := url.Values{"name": {"orders"}, "status": {scheduled}}, 0, 0
		for ; q != nil; seen++ {
			page, err := channel(t.Context(), Request{Query: q, Now: time.Now()})
			require.NoError(t, err)
			list := page.Parts[1].List
			found, q = found+len(list.Rows), list.Next
		}
		s.Close()
		require.Equal(t, []int{n, pages}, []int{found, seen}, "of %d messages", n)
	}
}
