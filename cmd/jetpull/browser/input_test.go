package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// find is a script whose function e is the first visible element that a CSS selector or an XPath matches. A script looks for elements, and
// not the browser's protocol: its ids of elements end when a document is complete or a live change replaces them, also between the look-up
// and the use.
func find(selector string) string {
	text, _ := json.Marshal(selector)
	return fmt.Sprintf(`(() => {
		const selector = %s, found = [];
		if (selector.startsWith("/")) {
			const all = document.evaluate(selector, document, null, XPathResult.ORDERED_NODE_ITERATOR_TYPE, null);
			for (let e = all.iterateNext(); e; e = all.iterateNext()) found.push(e);
		} else {
			found.push(...document.querySelectorAll(selector));
		}
		return found.find(e => e.checkVisibility({visibilityProperty: true}));
	})()`, text)
}

// await evaluates a script until it has a value other than null. While the tab is on the way to another page it has none.
func await[T any](b *tab, want, script string) (value T) {
	b.t.Helper()
	for begun := time.Now(); time.Since(begun) < waitMost; {
		if found, ok := try[*T](b, script); ok && found != nil {
			return *found
		}
		select {
		case <-b.ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	b.t.Fatalf("%s: there is no %s in:\n%s", b.url(), want, b.text())
	return value
}

// leads is a script that is true for an element e whose click leads the tab to another document, and then marks the present one.
const leads = `(e.matches("a") || e.form && !e.form.matches("#filter") && e.type === "submit") && (window.left = Date.now())`

// arrive waits until the tab has left the document that leads marked, and the next one is complete. A test does nothing to a page that is about
// to go. An update of the page can move a link away from under the mouse. As a user would, arrive then clicks on it again.
func (b *tab) arrive(selector string) {
	b.t.Helper()
	await[bool](b, "next page", `(() => {
		if (!window.left) return document.readyState === "complete" || null;
		const e = `+find(selector)+`;
		if (e && e.matches("a") && Date.now() - window.left > 5000) {
			window.left = Date.now();
			e.click();
		}
		return null;
	})()`)
}

// click clicks on the first element that is visible and matches a CSS selector or an XPath. If that leads to another page, it waits for it.
func (b *tab) click(selector string) {
	b.t.Helper()
	at := await[struct {
		X, Y  float64
		Leads bool
	}](b, selector, `(() => {
		const e = `+find(selector)+`;
		if (!e) return null;
		e.scrollIntoViewIfNeeded();
		const box = e.getClientRects()[0];
		const at = {X: box.left + box.width / 2, Y: box.top + box.height / 2};
		if (!e.contains(document.elementFromPoint(at.X, at.Y))) return null; // something is before it
		at.Leads = Boolean(`+leads+`);
		return at;
	})()`)
	run(b, chromedp.MouseClickXY(at.X, at.Y))
	if at.Leads {
		b.arrive(selector)
	}
}

// press clicks on a button or link by its text.
func (b *tab) press(label string) {
	b.t.Helper()
	b.click(fmt.Sprintf(`//main//*[self::button or self::a][normalize-space()=%q]`, label))
}

// typeInto types into the first visible field that a selector matches. In a list it selects the option with that text.
func (b *tab) typeInto(selector, text string) {
	b.t.Helper()
	label, err := json.Marshal(text)
	require.NoError(b.t, err)
	option := await[int](b, selector, `(() => {
		const e = `+find(selector)+`;
		e?.focus();
		if (!e || document.activeElement !== e) return null;
		return e.matches("select") ? [...e.options].find(o => o.text === `+string(label)+`)?.index ?? null : -1;
	})()`)
	if option >= 0 {
		// A browser selects by letters only if these come fast.
		text = kb.Home + strings.Repeat(kb.ArrowDown, option)
	}
	b.keys(text)
}

// keys types into what has the focus.
func (b *tab) keys(text string) {
	b.t.Helper()
	run(b, chromedp.KeyEvent(text))
}

// enter presses the enter key. If that leads to another page, it waits for it.
func (b *tab) enter() {
	b.t.Helper()
	left := evaluate[bool](b, `(() => { const e = document.activeElement; return Boolean(`+leads+`); })()`)
	b.keys("\r")
	if left {
		b.arrive("no link")
	}
}

// slash presses the key that leads to the search, as a keyboard does: the character belongs to the key, so the page can keep it from the field.
func (b *tab) slash() {
	b.t.Helper()
	command(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Code: "Slash", Text: "/"})
}

// focus moves the focus with the tab key until it is on a link or button with a label.
func (b *tab) focus(label string) {
	b.t.Helper()
	b.tabTo(fmt.Sprintf(`e.matches("a, button") && e.textContent.trim() === %q`, label))
}

// focusField moves the focus with the tab key until it is on a field.
func (b *tab) focusField(name string) {
	b.t.Helper()
	b.tabTo(fmt.Sprintf(`e.name === %q`, name))
}

// tabTo presses the tab key until a script is true for the element e that has the focus. It presses it as often as there seem to be elements
// before, and looks then.
func (b *tab) tabTo(script string) {
	b.t.Helper()
	for range 30 {
		presses := evaluate[int](b, `(() => {
			const is = e => `+script+`;
			if (document.activeElement && is(document.activeElement)) return 0;
			const all = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")].filter(e => e.checkVisibility());
			const here = all.indexOf(document.activeElement);
			return Math.max(1, all.findIndex((e, i) => i > here && is(e)) - here);
		})()`)
		if presses == 0 {
			return
		}
		b.keys(strings.Repeat("\t", presses))
	}
	b.t.Fatalf("the tab key leads to no element e with %s", script)
}
