package admin

import (
	"net/http"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
)

// nouns are the commands of jetpull broker that administer one.
var nouns = []struct {
	name, short string
	verbs       []verb
}{
	{"channels", "Show, configure and delete channels", []verb{
		{use: "ls", short: "List channels, newest first", path: "/channels", columns: []string{"ID", "Name", "ChangedAt"}},
		show("CHANNEL", "a channel"),
		put("put CHANNEL", "channel", []string{"token"}, nil),
		rm("rm CHANNEL", "Delete a channel with all in it. One in use is refused, with what waits in it", nil, force),
	}},
	{"producers", "Show, configure and delete producers", []verb{
		{use: "ls", short: "List producers, newest first", path: "/producers", columns: []string{"ID", "Name", "ChangedAt"}},
		show("PRODUCER", "a producer"),
		put("put PRODUCER", "producer", []string{"token"}, nil),
		rm("rm PRODUCER", "Delete a producer. Its messages and schedules stay", nil, nil),
	}},
	{"consumers", "Show, configure, pause and delete consumers", []verb{
		{
			use: "ls [CHANNEL]", short: "List consumers with their states and backlogs", path: "/consumers",
			columns: []string{"ChannelID", "ConsumerID", "Type", "State", "PausedBy", "Breaker", ">Queued", ">Inflight", ">Delivered", ">Dead"},
		},
		show("CHANNEL CONSUMER", "a consumer"),
		put("put CHANNEL CONSUMER", "consumer", []string{"token", "signingSecret", "headers"}, func(flags *pflag.FlagSet) {
			flags.String("callback-url", "", "`URL` that messages are POSTed to; one that is pulled has one too")
			flags.String("type", "", "push or pull")
			flags.StringSlice("event-types", nil, "`TYPES` that it gets, with commas; one that ends in * is for all with that front; none: all")
			flags.Int("concurrency", 0, "callbacks in progress, at most")
			flags.Float64("rate-limit", 0, "callbacks a second, at most")
		}),
		rm("rm CHANNEL CONSUMER", "Delete a consumer and its jobs. One with jobs to do is refused, with their number", unused, force),
		{use: "pause CHANNEL CONSUMER", short: "Let the jobs of a consumer wait", method: http.MethodPost, path: words["CONSUMER"].item + "/pause"},
		{use: "resume CHANNEL CONSUMER", short: "Let a paused consumer go on", method: http.MethodPost, path: words["CONSUMER"].item + "/resume"},
	}},
	{"access", "Show, configure and delete the access tokens of channels", []verb{
		{use: "ls CHANNEL", short: "List the access tokens of a channel", path: words["ACCESS"].list, columns: []string{"ID", "Name", "Role", "ChangedAt"}},
		show("CHANNEL ACCESS", "an access token"),
		put("put CHANNEL ACCESS", "access token", []string{"token"}, func(flags *pflag.FlagSet) {
			flags.String("role", "", "read, publish or manage")
		}),
		rm("rm CHANNEL ACCESS", "Delete an access token", nil, nil),
	}},
	{"messages", "Search and show messages", []verb{
		{
			use: "ls CHANNEL", short: "List the messages of a channel, newest first", path: words["MESSAGE"].list,
			columns: []string{"ID", "ReceivedAt", "ProducedBy", "EventType", "ContentType", "Payload"},
			flags: func(flags *pflag.FlagSet) {
				flags.String("id", "", "only that with this `ID`")
				flags.String("event-type", "", "only those of these `TYPES`, with commas; one that ends in * is for all with that front")
				flags.StringArray("metadata", nil, "only those with the metadata header `NAME:VALUE`; may be given several times")
				at(flags, "since", "only those received since")
				at(flags, "until", "only those received before")
			},
		},
		show("CHANNEL MESSAGE", "a message, with the states of its jobs"),
	}},
	{"scheduled", "Show and cancel scheduled messages", []verb{
		{
			use: "ls CHANNEL", short: "List the scheduled messages of a channel", path: words["SCHEDULED"].list,
			columns: []string{"messageId", "dispatchSchedule", "status", "producedBy", "eventType", "payload"},
		},
		show("CHANNEL SCHEDULED", "a scheduled message"),
		{use: "cancel CHANNEL SCHEDULED", short: "Cancel a scheduled message", run: (*call).cancelScheduled},
	}},
	{"jobs", "Show jobs, and requeue or delete dead ones", []verb{
		{
			use: "ls CHANNEL CONSUMER", short: "List the jobs of a consumer, of the newest message first", path: jobsPath,
			columns: []string{"MessageID", "Status", "StatusChangedAt", ">Retries", ">Attempts", "Due"},
			flags: func(flags *pflag.FlagSet) {
				flags.String("status", "", "only those that are QUEUED, INFLIGHT, DELIVERED or DEAD")
			},
		},
		{use: "show CHANNEL CONSUMER MESSAGE", short: "Show the job of a message", run: (*call).showJob},
		{
			use: "attempts CHANNEL CONSUMER MESSAGE", short: "List the callbacks of a push job, the last one first", run: (*call).attempts,
			columns: []string{">Attempt", "StartedAt", ">Duration", ">StatusCode", "Error", "ResponseBody"},
		},
		{
			use: "requeue CHANNEL CONSUMER [MESSAGE...]", short: "Queue dead jobs again", run: (*call).requeue, long: `Queue the dead jobs of these messages again, or all with --all. Each gets its
retries again. This is a replay: the broker does it, at --rate, and an interrupt
ends this command and not the replay.`,
			flags: func(flags *pflag.FlagSet) {
				flags.Bool("all", false, "all dead jobs of the consumer")
				paced(flags)
			},
		},
		{
			use: "purge CHANNEL CONSUMER [MESSAGE...]", short: "Delete dead jobs that have used up their retries", run: (*call).purge,
			flags: func(flags *pflag.FlagSet) {
				flags.Bool("all", false, "all of the consumer that have used up their retries")
			},
		},
	}},
	{"replay", "Queue dead or delivered jobs again", []verb{
		{
			use: "ls [CHANNEL] [CONSUMER]", short: "List replays that run, and the last ones that ended", path: words["REPLAY"].list,
			columns: []string{"ChannelID", "ConsumerID", "ID", "State", ">Count", ">Replayed", ">Skipped", "CreatedAt"},
		},
		{
			use: "start CHANNEL CONSUMER", short: "Queue dead or delivered jobs again", run: (*call).startReplay, long: `Queue settled jobs of a consumer again: all, or those that the flags choose. The
broker does it, at --rate. This command shows how far it is, and an interrupt ends
only the command.`,
			flags: func(flags *pflag.FlagSet) {
				flags.String("status", "", "only jobs that are DEAD, or only DELIVERED")
				flags.String("message", "", "only that of the message with this `ID`")
				flags.StringToString("metadata", nil, "only those of messages with the metadata header `NAME=VALUE`")
				at(flags, "since", "only those of messages received since")
				at(flags, "until", "only those of messages received before")
				paced(flags)
			},
		},
		{use: "status CHANNEL CONSUMER REPLAY", short: "Show how far a replay is", path: words["REPLAY"].item, run: (*call).replayStatus, flags: func(flags *pflag.FlagSet) {
			flags.Bool("follow", false, "until its end")
		}},
		{use: "cancel CHANNEL CONSUMER REPLAY", short: "End a replay; what it has queued stays queued", method: http.MethodDelete, path: words["REPLAY"].item},
	}},
}

// paced are the flags of what queues many jobs.
func paced(flags *pflag.FlagSet) {
	flags.Float64("rate", 100, "jobs a second")
	flags.Bool("dry-run", false, "say how many there are, and do nothing")
	flags.Bool("detach", false, "do not wait for the end")
}

// show is the verb that shows what the last word names.
func show(names, what string) verb {
	return verb{use: "show " + names, short: "Show " + what, path: words[last(names)].item, aliases: []string{"get"}}
}

// New returns the commands that administer the broker that their flags name.
func New(asJSON *bool) (cmds []*cobra.Command) {
	b := remote.NewBroker(asJSON)
	for _, noun := range nouns {
		cmd := &cobra.Command{Use: noun.name, Short: noun.short, Args: cobra.NoArgs, RunE: cli.Help}
		b.Flags(cmd)
		for _, v := range noun.verbs {
			cmd.AddCommand(v.command(b))
		}
		cmds = append(cmds, cmd)
	}
	return cmds
}
