package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

const (
	// idleSettle is how long a relay is left alone before its idle load is measured, and idleTime for how long that is.
	idleSettle = 10 * time.Second
	idleTime   = 30 * time.Second
)

// idle measures memory in MB, and the load in percent of a processor while nothing happens.
func (p *process) idle(ctx context.Context) (memory, load float64, err error) {
	for _, d := range []time.Duration{idleSettle, idleTime} {
		before, err := p.processor()
		if err != nil {
			return 0, 0, err
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
		after, err := p.processor()
		if err != nil {
			return 0, 0, err
		}
		load = 100 * (after - before).Seconds() / d.Seconds()
	}
	memory, err = p.memory()
	return memory, load, err
}

// busy is how many receivers of a fleet get messages at a time, and shift for how long these do.
const (
	busy  = 200
	shift = 2 * time.Second
)

// benchFleet measures what many receivers cost while nothing happens and while some of them get messages, one group after the
// other, and a restart with them.
func benchFleet(ctx context.Context, s settings) (figures []figure, err error) {
	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	p, err := startChild(ctx, s)
	if err != nil {
		return nil, err
	}
	defer p.close()
	receiver := newCounter(s.sources)
	defer receiver.Close()
	note := func(when string) error {
		memory, load, err := p.idle(ctx)
		figures = append(figures, figure{"idle memory " + when + ", MB", memory}, figure{"idle load " + when + ", % of a processor", load})
		return err
	}
	if err := note("with nothing"); err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := p.receivers(ctx, crowd{receivers: s.receivers}, receiver.URL, false); err != nil {
		return nil, err
	}
	figures = append(figures, figure{fmt.Sprintf("making %d receivers, s", s.receivers), time.Since(begin).Seconds()})
	if err := note(fmt.Sprintf("with %d receivers", s.receivers)); err != nil {
		return nil, err
	}
	memory, err := p.shifts(ctx, s, receiver)
	if err != nil {
		return nil, err
	}
	figures = append(figures, figure{fmt.Sprintf("memory with %d receivers busy at a time, the most, MB", busy), memory})
	if err := note(fmt.Sprintf("after %d messages", s.sources)); err != nil {
		return nil, err
	}
	took, err := p.restart(ctx, os.Interrupt)
	if err != nil {
		return nil, err
	}
	figures = append(figures, figure{"restart with them, s", took.Seconds()})
	return figures, note("after it")
}

// shifts hands in messages for one group of receivers after the other, waits until each has all of its own, and returns the most
// memory that was used.
func (p *process) shifts(ctx context.Context, s settings, receiver *counter) (most float64, err error) {
	all := crowd{sources: s.sources, receivers: s.receivers}
	for from := 0; from < s.sources; from += busy {
		next := time.After(shift)
		to := min(from+busy, s.sources)
		if err := p.send(ctx, all, from, to); err != nil {
			return 0, err
		}
		for receiver.n.Load() < int64(to) {
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return 0, fmt.Errorf("%d of %d requests came: %w", receiver.n.Load(), to, ctx.Err())
			}
		}
		memory, err := p.memory()
		if err != nil {
			return 0, err
		}
		most = max(most, memory)
		<-next
	}
	return most, nil
}

// benchPending measures what messages cost that wait for receivers which are paused, and a kill and a start with them.
func benchPending(ctx context.Context, s settings) ([]figure, error) {
	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	p, err := startChild(ctx, s)
	if err != nil {
		return nil, err
	}
	defer p.close()
	receiver := newCounter(s.pending)
	defer receiver.Close()
	if err := p.receivers(ctx, few, receiver.URL, true); err != nil {
		return nil, err
	}
	var memory [2]float64
	half := s.pending / 2
	begin := time.Now()
	for i := range memory {
		if err := p.send(ctx, few, i*half, (i+1)*half); err != nil {
			return nil, err
		}
		if memory[i], err = p.memory(); err != nil {
			return nil, err
		}
	}
	rate := float64(2*half) / time.Since(begin).Seconds()
	up, err := p.restart(ctx, os.Kill)
	if err != nil {
		return nil, err
	}
	after, err := p.memory()
	if err != nil {
		return nil, err
	}
	begin = time.Now()
	if err := p.receivers(ctx, few, receiver.URL, false); err != nil {
		return nil, err
	}
	for receiver.n.Load() == 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	first := time.Since(begin)
	n := fmt.Sprintf(" %d pending", 2*half)
	return []figure{
		{"handed in while receivers are paused, messages/s", rate},
		{fmt.Sprintf("memory with %d pending, MB", half), memory[0]},
		{"memory with" + n + ", MB", memory[1]},
		{"memory of one more, bytes", (memory[1] - memory[0]) * (1 << 20) / float64(half)},
		{"start after a kill with" + n + ", s", up.Seconds()},
		{"memory after that, MB", after},
		{"from then to the first POST, s", first.Seconds()},
	}, nil
}
