package measure

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

// Ours returns this library's samples, or nil where the case was run without it.
func (c *CaseResult) Ours() []Sample {
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

// Judge returns a verdict for each target that the case has figures for.
func (c *CaseResult) Judge() []Verdict {
	mine := c.Ours()
	if c.Failed != "" || len(mine) == 0 {
		return nil
	}
	verdicts := make([]Verdict, 0, len(c.Targets))
	for _, t := range c.Targets {
		v := Verdict{Target: t}
		if t.Rival == "" {
			v.Value = t.Metric.Spread(mine)
		} else {
			v.Value = t.Metric.Ratio(mine, c.rival(t.Rival), t.Limit)
		}
		v.Met = (t.AtLeast > 0 && v.Value.Median >= t.AtLeast) || (t.AtMost > 0 && v.Value.Median <= t.AtMost)
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// Comparison is this library beside the usual way with nats.go, in medians.
type Comparison struct {
	Rival        string
	Messages     int     // in a round of ours
	Ours, Theirs float64 // messages a second
	Rate, CPU    float64 // ours over theirs
	Rates        Spread  // of that of the rate, of which Rate is the median
	Allocs       float64 // ours, for a message
	TheirAllocs  float64
}

// Compare returns ok false where the case has no figures of both.
func (c *CaseResult) Compare() (_ Comparison, ok bool) {
	mine := c.Ours()
	if c.Failed != "" || len(mine) == 0 || len(c.Contenders) < 2 {
		return Comparison{}, false
	}
	rival := c.Contenders[1]
	rates := Rate.Ratio(mine, rival.Samples, 0)
	return Comparison{
		Rival: rival.Name, Messages: mine[0].Messages,
		Ours: Rate.Spread(mine).Median, Theirs: Rate.Spread(rival.Samples).Median,
		Rate: rates.Median, Rates: rates, CPU: CPUPer.Ratio(mine, rival.Samples, 0).Median,
		Allocs: AllocsPer.Spread(mine).Median, TheirAllocs: AllocsPer.Spread(rival.Samples).Median,
	}, true
}
