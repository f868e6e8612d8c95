package service

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// config is one of a system that has a setting of each kind.
type config struct {
	name, mode string
	size       int
	open       bool
	wait, keep time.Duration
	waits      []time.Duration
	space      int64
	old        []string
}

var testSchema = NewSchema("test", map[string]string{"work-size": "size"},
	Text("http", "listener", "here", "where", func(c *config) *string { return &c.name }),
	Choice("http", "mode", "a", []string{"a", "b"}, "how", func(c *config) *string { return &c.mode }),
	Number("work", "size", "3", 1, 9, "how many", func(c *config) *int { return &c.size }),
	Boolean("work", "open", "false", "whether", func(c *config) *bool { return &c.open }),
	Duration("work", "wait", "1.5", time.Second, 0, time.Hour, "how long", func(c *config) *time.Duration { return &c.wait }),
	Duration("work", "keep-days", "0", 24*time.Hour, 0, Century, "how long", func(c *config) *time.Duration { return &c.keep }),
	Seconds("work", "waits", "1,2", 0, "some", func(c *config) *[]time.Duration { return &c.waits }),
	Bytes("work", "space", "1KB", "how much", func(c *config) *int64 { return &c.space }),
	Setting[config]{Section: "work", Key: "old", Default: "x", Help: "none", Ignored: true, Set: func(c *config, value string) error {
		c.old = append(c.old, value)
		return nil
	}},
)

func (c *config) readINI(data []byte) error {
	file, err := ParseINI(data)
	if err != nil {
		return err
	}
	return testSchema.Read(c, file, UnknownSection)
}

func defaults() *config { return testSchema.New() }

func TestDefaultsAndSample(t *testing.T) {
	want := &config{name: "here", mode: "a", size: 3, wait: 1500 * time.Millisecond, waits: []time.Duration{time.Second, 2 * time.Second}, space: 1000}
	require.Equal(t, want, defaults())
	sample := testSchema.Sample("A test")
	require.Equal(t, `# A test. Every key is a flag, which --help names,
# and an environment variable, JETPULL_TEST_SECTION_KEY.

[http]
# where
listener = here
# how: a, b
mode = a

[work]
# how many
size = 3
# whether
open = false
# how long
wait = 1.5
# how long
keep-days = 0
# some
waits = 1,2
# how much
space = 1KB
`, sample)
	var c config
	require.NoError(t, c.readINI([]byte(sample)))
	require.Equal(t, want, &c)
	require.True(t, testSchema.Has("work"))
	require.False(t, testSchema.Has("word"))
	require.Len(t, testSchema.Settings(), 9)
}

func TestSourcesInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.cfg")
	require.NoError(t, os.WriteFile(path, []byte("[http]\nlistener=file\n[work]\nsize=4\nopen=true\nold=y\nkeep-days=0.5\n"), 0o600))
	c := defaults()
	require.NoError(t, testSchema.Load(c, Sources{
		File: path,
		Env: func(name string) (string, bool) {
			value, ok := map[string]string{"JETPULL_TEST_WORK_SIZE": "5", "JETPULL_TEST_WORK_KEEP_DAYS": "2"}[name]
			return value, ok
		},
		Flags: map[string]string{"size": "6", "listen": "flag"},
	}, c.readINI))
	require.Equal(t, "flag", c.name)
	require.Equal(t, 6, c.size)
	require.True(t, c.open)
	require.Equal(t, 48*time.Hour, c.keep)
	require.Equal(t, []string{"y"}, c.old)
}

func TestBadValuesAreRefusedByName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.cfg")
	require.NoError(t, os.WriteFile(path, []byte("[work]\nsize=10\nnone=1\n"), 0o600))
	c := defaults()
	err := testSchema.Load(c, Sources{
		File:  path,
		Env:   func(name string) (string, bool) { return "?", name == "JETPULL_TEST_HTTP_MODE" },
		Flags: map[string]string{"work-open": "perhaps", "work-wait": "3601", "work-keep-days": "1e9", "work-waits": "1,x", "nats-url": "nats://one"},
	}, c.readINI)
	for _, want := range []string{
		path + `: [work] size: "10" is not a whole number from 1 to 9`, "[work] none: no such key",
		`environment variable JETPULL_TEST_HTTP_MODE: [http] mode: "?" is not one of a, b`,
		`flag --work-open: [work] open: "perhaps" is neither true nor false`,
		`"3601" is not a number of seconds from 0 to 3600`, `"1e9" is not a number of days from 0 to 100 years`, `"x" is not a number of seconds`,
		"flag --nats-url: no such flag",
	} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, testSchema.Load(c, Sources{File: "/does/not/exist"}, c.readINI), "read the configuration")
	require.ErrorContains(t, c.readINI([]byte("no ini at all")), "not an INI file")
}

func TestDurations(t *testing.T) {
	for value, want := range map[string]time.Duration{"0.01": 10 * time.Millisecond, "3600": time.Hour, "1e1": 10 * time.Second} {
		got, err := ParseDuration(value, time.Second, 10*time.Millisecond, time.Hour)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, value := range []string{"", "NaN", "Inf", "-Inf", "-1", "0.009", "3600.1", "1e300", "1s", "0x"} {
		_, err := ParseDuration(value, time.Second, 10*time.Millisecond, time.Hour)
		require.ErrorContains(t, err, "is not a number of seconds from 0.01 to 3600", value)
	}
	var c config
	waits := testSchema.Settings()[6]
	require.NoError(t, waits.Apply(&c, " 1 , ,2.5,"))
	require.Equal(t, []time.Duration{time.Second, 2500 * time.Millisecond}, c.waits)
	require.NoError(t, waits.Apply(&c, ""))
	require.Empty(t, c.waits)
}

// A system may take values above their bounds as these.
func TestClamp(t *testing.T) {
	clamping := NewSchema("test", nil, testSchema.Settings()...).Clamp(func(c *config, warning string) { c.old = append(c.old, warning) })
	for i, tt := range []struct{ value, large, bound string }{
		2: {"10", "10", "9"}, 4: {"3601", "3601", "3600"}, 6: {"5,1e999,4e9", "4e9", "3153600000"}, 7: {"2e9GB", "2e9GB", "1152921504606846976"},
	} {
		if tt.value == "" {
			continue
		}
		one, c := clamping.Settings()[i], defaults()
		require.ErrorContains(t, testSchema.Settings()[i].Apply(c, tt.value), "["+one.Section+"] "+one.Key)
		require.NoError(t, one.Apply(c, tt.value))
		require.Contains(t, c.old, "["+one.Section+"] "+one.Key+": "+tt.large+" is more than "+tt.bound+" and counts as that")
		require.Error(t, one.Apply(c, "x"))
	}
}

func TestStray(t *testing.T) {
	require.Equal(t, []string{"environment variable JETPULL_TEST_WORK_SIZES is not known and has no effect"},
		testSchema.Stray([]string{"HOME=/", "JETPULL_TEST_WORK_SIZES=1", "JETPULL_TEST_WORK_SIZE=1", "JETPULL_TEST_URL=x", "JETPULL_OTHER_X=1"},
			"JETPULL_TEST_URL"))
}

// Whatever a file or a value is, it is refused or within its bounds.
func FuzzReadINI(f *testing.F) {
	f.Add([]byte(testSchema.Sample("A test")))
	f.Add([]byte("[work]\nsize=\"\"\"\nwait=1e999\n"))
	f.Add([]byte("[work]\nwaits=1,,-1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := defaults()
		if c.readINI(data) != nil {
			return
		}
		require.True(t, c.size >= 1 && c.size <= 9)
		require.True(t, c.wait >= 0 && c.wait <= time.Hour)
		require.True(t, c.keep >= 0 && c.keep <= Century)
		for _, d := range c.waits {
			require.True(t, d >= 0 && d <= Century)
		}
	})
}
