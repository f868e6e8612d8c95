package brokercmd

import (
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
)

// nouns are the subcommands that administer a broker.
var nouns = []remote.Noun{
	{Name: "channels", Short: "Show, configure and delete channels", Verbs: []remote.Verb{
		{Use: "ls", Short: "List channels, newest first", Path: "/channels", Columns: []string{"ID", "Name", "ChangedAt"}},
		show("CHANNEL", "a channel"),
		put("put CHANNEL", "a channel", []string{"token"}, nil),
		rm("rm CHANNEL", "Delete a channel with its messages; without --force only if it has no consumers and no scheduled messages", nil, force),
	}},
	{Name: "producers", Short: "Show, configure and delete producers", Verbs: []remote.Verb{
		{Use: "ls", Short: "List producers, newest first", Path: "/producers", Columns: []string{"ID", "Name", "ChangedAt"}},
		show("PRODUCER", "a producer"),
		put("put PRODUCER", "a producer", []string{"token"}, nil),
		rm("rm PRODUCER", "Delete a producer; its messages and schedules stay", nil, nil),
	}},
	{Name: "consumers", Short: "Show, configure, pause and delete consumers", Verbs: []remote.Verb{
		{
			Use: "ls [CHANNEL]", Short: "List consumers with their states and backlogs", Path: "/consumers",
			Columns: []string{
				"ChannelID", "ConsumerID", "Type", "State", "PausedBy", "Breaker", "WaitingFor", ">Queued", ">Inflight", ">Delivered", ">Dead",
			},
		},
		show("CHANNEL CONSUMER", "a consumer"),
		put("put CHANNEL CONSUMER", "a consumer", []string{"token", "signingSecret", "headers"}, func(flags *pflag.FlagSet) {
			flags.String("callback-url", "", "`URL` that messages are POSTed to; a pull consumer needs one too, although the broker does not call it")
			flags.String("type", "", "push: the broker calls --callback-url; pull: workers claim jobs; a new consumer without it is push")
			flags.StringSlice("event-types", nil, "event `TYPES` that it gets, separated by commas; order.* is every type that begins with order.; empty: all")
			flags.Int("concurrency", 0, "maximum callbacks in progress, 1 to 65536; if it was never set, the broker's --broker-concurrency")
			flags.Float64("rate-limit", 0, "maximum callbacks per second, above 0 and up to 1000000; if it was never set, no limit")
		}),
		rm("rm CHANNEL CONSUMER", "Delete a consumer and its jobs; without --force only if no job is queued or in flight", unused, force),
		{
			Use: "pause CHANNEL CONSUMER", Short: "Pause a consumer: its jobs wait until resume", Method: http.MethodPost,
			Path: words["CONSUMER"].Item + "/pause",
		},
		{Use: "resume CHANNEL CONSUMER", Short: "Resume a paused consumer", Method: http.MethodPost, Path: words["CONSUMER"].Item + "/resume"},
	}},
	{Name: "access", Short: "Show, configure and delete the access tokens of channels", Verbs: []remote.Verb{
		{
			Use: "ls CHANNEL", Short: "List the access tokens of a channel", Path: "/channel/CHANNEL/access",
			Columns: []string{"ID", "Name", "Role", "ChangedAt"},
		},
		show("CHANNEL ACCESS", "an access token"),
		put("put CHANNEL ACCESS", "an access token", []string{"token"}, func(flags *pflag.FlagSet) {
			flags.String("role", "", "what the token allows: read, publish or manage")
		}),
		rm("rm CHANNEL ACCESS", "Delete an access token", nil, nil),
	}},
	{Name: "messages", Short: "Search and show messages", Verbs: []remote.Verb{
		{
			Use: "ls CHANNEL", Short: "List the messages of a channel, newest first", Path: "/channel/CHANNEL/messages",
			Columns: []string{"ID", "ReceivedAt", "ProducedBy", "EventType", "ContentType", "Payload"},
			Flags: func(flags *pflag.FlagSet) {
				flags.String("id", "", "only the message with this `ID`")
				flags.String("event-type", "", "only messages of these event `TYPES`, separated by commas; order.* is every type that begins with order.")
				metadata(flags, "only messages")
				cli.Past(flags, new(time.Time), "since", "only messages received since")
				cli.Past(flags, new(time.Time), "until", "only messages received before")
			},
		},
		show("CHANNEL MESSAGE", "a message, with the states of its jobs"),
	}},
	{Name: "scheduled", Short: "Show and cancel scheduled messages", Verbs: []remote.Verb{
		{
			Use: "ls CHANNEL", Short: "List the scheduled messages of a channel", Path: "/channel/CHANNEL/scheduled-messages",
			Columns: []string{"messageId", "dispatchSchedule", "status", "producedBy", "eventType", "payload"},
		},
		show("CHANNEL SCHEDULED", "a scheduled message"),
		{Use: "cancel CHANNEL SCHEDULED", Short: "Cancel a scheduled message", Run: cancelScheduled},
	}},
	{Name: "jobs", Short: "Show jobs, and delete dead or queued ones", Verbs: []remote.Verb{
		{
			Use: "ls CHANNEL CONSUMER", Short: "List the jobs of a consumer, newest message first", Path: jobsPath,
			Columns: []string{"MessageID", "Status", "StatusChangedAt", ">Retries", ">Attempts", "Due"},
			Flags: func(flags *pflag.FlagSet) {
				flags.String("status", "", "only jobs with this status: QUEUED, INFLIGHT, DELIVERED or DEAD")
			},
		},
		{Use: "show CHANNEL CONSUMER MESSAGE", Short: "Show the job of a message", Run: showJob},
		{
			Use: "attempts CHANNEL CONSUMER MESSAGE", Short: "List the callbacks of a push job, newest first", Run: attempts,
			Columns: []string{">Attempt", "StartedAt", ">Duration", ">StatusCode", "Error", "ResponseBody"},
		},
		{
			Use: "purge CHANNEL CONSUMER [MESSAGE...]", Short: "Delete dead jobs that have no retries left", Run: purge,
			Long: `Delete the dead jobs of these messages, or all with --all. A job that has retries left
is not deleted. Deleted jobs cannot be queued again.`,
			Flags: func(flags *pflag.FlagSet) {
				flags.Bool("all", false, "all dead jobs of the consumer that have no retries left")
			},
		},
		{
			Use: "purge-queued CHANNEL CONSUMER", Short: "Delete the jobs that are queued now", Run: operate, Path: words["CONSUMER"].Item + "/purge",
			Long: `Delete the jobs of a consumer that are queued when the command begins, also those that
wait for a retry. Jobs in flight, dead and delivered ones stay, and so do all jobs of
later messages. Deleted jobs cannot be queued again. The broker does this, at --rate.
This command shows the progress. An interrupt ends this command but not the purge;
see jetpull broker replay, which shows and cancels it.`,
			Flags: func(flags *pflag.FlagSet) { remote.Paced(flags, 10_000, "maximum jobs per second, from 1 to 100000") },
		},
	}},
	{Name: "replay", Short: "Queue dead or delivered jobs again", Verbs: []remote.Verb{
		{
			Use: "ls [CHANNEL] [CONSUMER]", Short: "List the running replays and purges, and the last ones that ended", Path: "/replays",
			Columns: []string{"ChannelID", "ConsumerID", "ID", "Kind", "State", ">Count", ">Replayed", ">Purged", ">Skipped", ">Failed", "CreatedAt"},
		},
		{
			Use: "start CHANNEL CONSUMER", Short: "Queue dead or delivered jobs again", Run: operate, Path: words["CONSUMER"].Item + "/replay",
			Long: `Queue dead and delivered jobs of a consumer again: all, or those that match every
flag. The broker does this, at --rate. This command shows the progress. An interrupt
ends this command but not the replay.`,
			Flags: func(flags *pflag.FlagSet) {
				flags.String("status", "", "only jobs with this status: DEAD or DELIVERED")
				flags.String("message", "", "only the job of the message with this `ID`")
				metadata(flags, "only jobs of messages")
				cli.Past(flags, new(time.Time), "since", "only jobs of messages received since")
				cli.Past(flags, new(time.Time), "until", "only jobs of messages received before")
				remote.Paced(flags, 100, "maximum jobs per second, from 1 to 100000")
			},
		},
		{Use: "status CHANNEL CONSUMER REPLAY", Short: "Show the progress of a replay", Run: (*remote.Call).OperationStatus, Flags: remote.Follow},
		{Use: "cancel CHANNEL CONSUMER REPLAY", Short: "End a replay; jobs that it has queued stay queued", Method: http.MethodDelete},
	}},
}

func metadata(flags *pflag.FlagSet, those string) {
	flags.StringToString("metadata", nil, those+" with the metadata header `NAME=VALUE`; may be given several times")
}

// show returns the verb that shows the object that the last word names.
func show(names, what string) remote.Verb {
	return remote.Verb{Use: "show " + names, Short: "Show " + what, Aliases: []string{"get"}}
}
