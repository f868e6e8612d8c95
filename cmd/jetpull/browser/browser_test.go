package test

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console"
)

//go:embed testdata/axe.min.js
var axe string

// waitMost bounds every wait for a condition. It is generous: a loaded machine is no failure.
const waitMost = 30 * time.Second

var browser struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if browser.stop != nil {
		browser.stop()
	}
	os.Exit(code)
}

// startBrowser starts the one browser of all tests. A test without a browser is skipped, and fails with CI=true.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	// The shell has the pages without windows. It takes less than half of the processor time.
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("no chromium is installed, which this test needs: apt-get install chromium-headless-shell")
		}
		t.Skip("no chromium is installed, which this test needs: apt-get install chromium-headless-shell")
	}
	browser.once.Do(func() {
		dir, err := os.MkdirTemp("", "jetpull-chromium-") //nolint:usetesting // it outlives the test that starts the browser
		if err != nil {
			browser.err = err
			return
		}
		// Chromium has a process for the menu of the address bar of each window unless this menu is drawn without WebUI.
		// No test goes back to a page, so none is kept for that, and no process is started in advance.
		features := "Translate,BlinkGenPropertyTrees,WebUIOmniboxPopup,WebUIOmniboxAimPopup,BackForwardCache,SpareRendererForSitePerProcess"
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.Flag("disable-features", features), chromedp.ExecPath(path),
			chromedp.NoSandbox, chromedp.UserDataDir(dir),
			chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
			chromedp.WSURLReadTimeout(time.Minute))
		allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, stop := chromedp.NewContext(allocator)
		browser.ctx, browser.err = ctx, chromedp.Do(ctx)
		browser.stop = func() {
			stop()
			stopAllocator()
			_ = os.RemoveAll(dir)
		}
	})
	require.NoError(t, browser.err, "start chromium")
	return browser.ctx
}

// tab is a tab of the browser. Errors that the browser logs fail the test at its end.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu         sync.Mutex
	complaints []string
}

// look is how a page is looked at.
type look struct {
	width  int64
	scheme string
}

var wide, narrow = look{1280, "light"}, look{360, "dark"}

// openTab opens a tab on a console's address.
func openTab(t *testing.T, base string, l look) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(startBrowser(t), chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, base: base}
	require.NoError(t, chromedp.Listen(ctx, b.listen))
	b.look(l)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Empty(t, b.complaints, "the browser complains")
	})
	return b
}

// listen records errors, warnings and reports of the content security policy. Answers that are no page of their own, such as a 404, are
// what some tests ask for.
func (b *tab) listen(event any) {
	complaint := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text, _ := json.Marshal(e.ExceptionDetails)
		complaint = string(text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			args, _ := json.Marshal(e.Args)
			complaint = string(args)
		}
	case *log.EventEntryAdded:
		if e.Entry.Source != log.EntrySourceNetwork && (e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning) {
			complaint = string(e.Entry.Source) + ": " + e.Entry.Text
		}
	}
	if complaint != "" {
		b.mu.Lock()
		b.complaints = append(b.complaints, complaint)
		b.mu.Unlock()
	}
}

// run runs an action in the tab and returns its value.
func run[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, waitMost)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	require.NoError(b.t, err)
	return value
}

func evaluate[T any](b *tab, script string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// try evaluates a script in a tab that may be on the way to another page. Then there is no value.
func try[T any](b *tab, script string) (value T, ok bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, waitMost)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	require.NoError(b.t, b.ctx.Err())
	return value, err == nil
}

// command runs a command of the browser's protocol.
func command[P, R any](b *tab, c cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, waitMost)
	defer cancel()
	_, err := chromedp.Call(ctx, c, params)
	require.NoError(b.t, err)
}

func (b *tab) look(l look) {
	b.t.Helper()
	run(b, chromedp.EmulateViewport(l.width, 900))
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: l.scheme},
	}})
}

// open leads the tab to a page of the console.
func (b *tab) open(page string) {
	b.t.Helper()
	run(b, chromedp.Navigate(b.base+page))
}

// openHidden opens a page in a tab that says of itself that it is hidden.
func (b *tab) openHidden(path string) {
	b.t.Helper()
	command(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `Object.defineProperty(document, "hidden", {value: true, configurable: true})`,
	})
	b.open(path)
}

func (b *tab) hide(hidden bool) {
	b.t.Helper()
	evaluate[bool](b, fmt.Sprintf(`Object.defineProperty(document, "hidden", {value: %t, configurable: true}); document.dispatchEvent(new Event("visibilitychange"))`, hidden))
}

func (b *tab) noScript() {
	b.t.Helper()
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// text is the text of the page that is visible; empty: the tab is on the way to another page.
func (b *tab) text() string {
	b.t.Helper()
	text, _ := try[string](b, `document.body?.innerText ?? ""`)
	return text
}

// until waits until the page's text fulfils a condition.
func (b *tab) until(want string, is func(text string) bool) {
	b.t.Helper()
	text := ""
	for begun := time.Now(); time.Since(begun) < waitMost; {
		if text = b.text(); is(text) {
			return
		}
		select {
		case <-b.ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	b.t.Fatalf("%s: %s does not come to be in:\n%s", b.url(), want, text)
}

// eventually waits until the page's text has all of these.
func (b *tab) eventually(texts ...string) {
	b.t.Helper()
	for _, one := range texts {
		b.until(fmt.Sprintf("%q", one), func(text string) bool { return strings.Contains(text, one) })
	}
}

// gone waits until the page's text has no such text.
func (b *tab) gone(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("no %q", text), func(now string) bool { return now != "" && !strings.Contains(now, text) })
}

// looks are those in which an audit looks at a page, and allLooks those in which it does where tests may take long.
var (
	looks    = []look{wide, narrow}
	allLooks = []look{wide, {1280, "dark"}, {800, "light"}, {800, "dark"}, {360, "light"}, narrow}
)

// audit holds the page against the rules of axe-core. With -short it looks in two ways, and else at each width in light and in dark.
func (b *tab) audit() {
	b.t.Helper()
	looks := looks
	if !testing.Short() {
		looks = allLooks
	}
	evaluate[int](b, axe+";0")
	for _, l := range looks {
		b.look(l)
		found := evaluate[[]string](b, `axe.run({resultTypes: ["violations"]}).then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.target.join(" ") + ": " + n.failureSummary)))`)
		require.Empty(b.t, found, "axe finds at %d px, %s", l.width, l.scheme)
		b.fits()
	}
	b.look(wide)
}

// fits waits until the page is not wider than the window. It may be for a moment, before its style sheet is there.
func (b *tab) fits() {
	b.t.Helper()
	var wider []string
	b.until("a page that is not wider than the window", func(text string) bool {
		now := evaluate[[]string](b, `(() => {
			const width = document.documentElement?.clientWidth ?? Infinity; // there is none while a page replaces another
			if (!((document.documentElement?.scrollWidth ?? 0) > width)) return [];
			return [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > width + 1 || e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0).map(e => e.outerHTML.slice(0, 200));
		})()`)
		if len(now) > 0 && !slices.Equal(now, wider) {
			b.t.Log("wider than the window:", now)
		}
		wider = now
		return text != "" && len(wider) == 0
	})
}

// shoot writes a picture of the page where a folder is given, to be looked at by a person.
func (b *tab) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("CONSOLE_PICTURES")
	if dir == "" {
		return
	}
	for _, l := range []look{{1280, "light"}, {1280, "dark"}, {360, "light"}} {
		b.look(l)
		picture := run(b, chromedp.FullScreenshot(100))
		require.NoError(b.t, os.WriteFile(fmt.Sprintf("%s/%s-%d-%s.png", dir, name, l.width, l.scheme), picture, 0o600))
	}
	b.look(wide)
}

// serve serves a console below a path of its own, as behind a proxy. The address ends with a slash.
func serve(t testing.TB, cfg console.Config) string {
	t.Helper()
	c := console.Handler(cfg)
	mux := http.NewServeMux()
	mux.Handle("/ops/console/", http.StripPrefix("/ops/console", c))
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		c.Close()
	})
	return s.URL + "/ops/console/"
}

func (b *tab) url() string {
	b.t.Helper()
	return run(b, chromedp.Location())
}
