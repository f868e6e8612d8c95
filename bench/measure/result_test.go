package measure

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func judged() CaseResult {
	return CaseResult{
		Contenders: []ContenderResult{
			{Name: oursName, Ours: true, Samples: rates(300, 310, 320)},
			{Name: "usual", Samples: rates(100, 100, 100)},
			{Name: "limit", Samples: rates(600, 600, 600)},
		},
		Targets: []Target{
			{Metric: Rate, Rival: "usual", AtLeast: 3},
			{Metric: Rate, Rival: "limit", AtLeast: 0.98},
			{Metric: AllocsPer, AtMost: 4},
			{Metric: Rate, Rival: "gone", AtLeast: 1},
		},
	}
}

func TestJudge(t *testing.T) {
	c := judged()
	verdicts := c.Judge()
	require.Len(t, verdicts, 4)
	assert.Equal(t, []bool{true, false, true}, []bool{verdicts[0].Met, verdicts[1].Met, verdicts[2].Met})
	assert.False(t, verdicts[3].Met, "a rival without figures is not beaten")
	assert.InDelta(t, 3.1, verdicts[0].Value.Median, 1e-9)
	c.Failed = "received 1 of 2 messages"
	assert.Empty(t, c.Judge(), "a failed case has no verdict")
	assert.Empty(t, (&CaseResult{Targets: c.Targets, Contenders: c.Contenders[1:]}).Judge(), "rivals alone have no verdict")
}

func TestCompare(t *testing.T) {
	c := judged()
	got, ok := c.Compare()
	require.True(t, ok)
	assert.Equal(t, Comparison{Rival: "usual", Messages: 300, Ours: 310, Theirs: 100, Rate: 3.1, Rates: Spread{Median: 3.1, Min: 3, Max: 3.2}}, got)
	for _, none := range []CaseResult{
		{Failed: "lost", Contenders: c.Contenders}, {Contenders: c.Contenders[1:]}, {Contenders: c.Contenders[:1]},
	} {
		_, ok = none.Compare()
		assert.False(t, ok)
	}
}
