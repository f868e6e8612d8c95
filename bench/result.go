package main

import "time"

// Report is a whole run: what was measured, where, and the figures. It is written as JSON in full.
type Report struct {
	Environment Environment  `json:"environment"`
	Against     string       `json:"against,omitempty"` // the other build, where two builds were compared
	Cases       []CaseResult `json:"cases"`
	Idle        []IdleResult `json:"idle,omitempty"`
}

// Environment is where the figures were taken.
type Environment struct {
	Time          time.Time     `json:"time"`
	Go            string        `json:"go"`
	Client        string        `json:"nats_go"`
	Server        string        `json:"nats_server"`
	System        string        `json:"system"`
	Processors    int           `json:"processors"`
	Load          string        `json:"load,omitempty"` // load average before the run
	Rounds        int           `json:"rounds"`
	Payload       int           `json:"payload"`
	MaxAckPending int           `json:"max_ack_pending"` // 0: the server's default
	RoundTrip     time.Duration `json:"round_trip_ns"`
	SlowRoundTrip time.Duration `json:"slow_round_trip_ns"`
}

// CaseResult has the figures of one case.
type CaseResult struct {
	Name       string            `json:"name"`
	Title      string            `json:"title"`
	Words      string            `json:"words,omitempty"`
	Contenders []ContenderResult `json:"contenders"`
	Targets    []Target          `json:"targets,omitempty"`
	Failed     string            `json:"failed,omitempty"` // why the case has no full set of rounds
}

// ContenderResult has one contender's samples, one for each round.
type ContenderResult struct {
	Name    string   `json:"name"`
	Ours    bool     `json:"ours"`
	Samples []Sample `json:"samples"`
}

// ours returns this library's samples, or nil where the case was run without it.
func (c *CaseResult) ours() []Sample {
	for _, contender := range c.Contenders {
		if contender.Ours {
			return contender.Samples
		}
	}
	return nil
}

// rival returns the samples of the contender of that name, or nil.
func (c *CaseResult) rival(name string) []Sample {
	for _, contender := range c.Contenders {
		if contender.Name == name {
			return contender.Samples
		}
	}
	return nil
}

// Verdict is a target and the figures that it judges.
type Verdict struct {
	Target
	Value Spread // the ratio, or our figure where the target names no rival
	Met   bool
}

// judge returns a verdict for each target that the case has figures for.
func (c *CaseResult) judge() []Verdict {
	mine := c.ours()
	if c.Failed != "" || len(mine) == 0 {
		return nil
	}
	verdicts := make([]Verdict, 0, len(c.Targets))
	for _, t := range c.Targets {
		v := Verdict{Target: t}
		if t.Rival == "" {
			v.Value = t.Metric.spread(mine)
		} else {
			v.Value = t.Metric.ratio(mine, c.rival(t.Rival), t.Limit)
		}
		v.Met = (t.AtLeast > 0 && v.Value.Median >= t.AtLeast) || (t.AtMost > 0 && v.Value.Median <= t.AtMost)
		verdicts = append(verdicts, v)
	}
	return verdicts
}
