package consumecmd

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A run does not end by --idle at the moment at which a message is done.
func TestIdleBeginsAgainWhenAMessageIsDone(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			var ended atomic.Bool
			r := &run{consume: &consume{idle: time.Second}, open: map[uint64]bool{}, stop: func() { ended.Store(true) }}
			begun := make(chan struct{})
			go func() {
				<-begun
				time.Sleep(time.Second / 2)
				r.done(1, nil)
			}()
			r.timer = time.AfterFunc(r.idle, r.endIdle)
			time.Sleep(time.Second / 2)
			require.True(t, r.begin())
			close(begun)
			time.Sleep(time.Second)
			synctest.Wait()
			require.False(t, ended.Load(), "half a second after the message")
			time.Sleep(time.Second)
			synctest.Wait()
			require.True(t, ended.Load())
		})
	}
}
