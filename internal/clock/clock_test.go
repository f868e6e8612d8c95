package clock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Between two readings, ten seconds apart, the server's clock moves by more or less.
func TestServersClockIsSet(t *testing.T) {
	for name, tt := range map[string]struct {
		server time.Duration // by how much more than ten seconds it moves
		late   time.Duration // the time of the answer
		want   time.Duration // by how much more the result moves
	}{
		"nobody sets it":               {},
		"ahead":                        {server: time.Hour, want: time.Hour},
		"back":                         {server: -time.Hour, want: -time.Hour},
		"a slow answer":                {server: -3 * time.Second, late: 3 * time.Second},
		"a slow answer after it":       {server: -5 * time.Second, late: 3 * time.Second, want: -5 * time.Second},
		"a reading that is more exact": {server: 20 * time.Millisecond, late: 3 * time.Second, want: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c Clock
				server := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
				c.Set(server, time.Now())
				require.Equal(t, server, c.Now())
				const took = 10 * time.Second
				time.Sleep(took)
				require.Equal(t, server.Add(took), c.Now())
				c.Set(server.Add(took+tt.server), time.Now().Add(-tt.late))
				require.Equal(t, server.Add(took+tt.want), c.Now())
				time.Sleep(took)
				require.Equal(t, server.Add(2*took+tt.want), c.Now())
			})
		})
	}
}

// Before the first reading it is the clock of the process.
func TestClockOfTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		require.True(t, time.Now().Equal(c.Now()))
		require.Equal(t, time.UTC, c.Now().Location())
		c.Set(time.Now().Add(time.Hour), time.Now())
		require.True(t, time.Now().Add(time.Hour).Equal(c.Now()))
	})
}
