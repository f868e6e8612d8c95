// Keeps times relative, and states when the console does not answer. All else works without this script.
"use strict";
(() => {
  const lost = 6000; // Milliseconds without an event after which the page is marked as stale.
  let heard = Date.now();

  function ago(ms) {
    const seconds = Math.trunc(Math.abs(ms) / 1000);
    let text = seconds + " s";
    if (seconds >= 172800) text = Math.trunc(seconds / 86400) + " d";
    else if (seconds >= 3600) text = Math.trunc(seconds / 3600) + " h";
    else if (seconds >= 60) text = Math.trunc(seconds / 60) + " min";
    if (ms < -1000) return "in " + text;
    return ms < 1000 ? "now" : text + " ago";
  }

  function tick() {
    const now = Date.now();
    for (const time of document.querySelectorAll("time.ago")) {
      const text = ago(now - Date.parse(time.dateTime));
      if (time.textContent !== text) time.textContent = text;
    }
    const live = document.querySelector("#live");
    const state = document.querySelector("#state")?.dataset;
    if (state && document.title !== state.title) {
      document.title = state.title;
      document.querySelector("link[rel=icon]").href = state.icon;
    }
    const gone = live?.hasAttribute("hx-sse:connect") && !document.hidden && now - heard > lost;
    document.body.classList.toggle("offline", Boolean(gone));
    document.querySelector("#offline")?.toggleAttribute("hidden", !gone);
  }

  // A stream sends "asked" with the time of each source's last answer. What else it sends has no name and is morphed into the page.
  document.addEventListener("asked", (event) => {
    heard = Date.now();
    // hx-sse ends the stream of a hidden tab at this event. It has none of it if the tab was opened in the background.
    if (document.hidden) document.dispatchEvent(new Event("visibilitychange"));
    for (const [source, at] of Object.entries(JSON.parse(event.detail.data))) {
      for (const asked of document.querySelectorAll("[data-source]")) {
        if (asked.dataset.source !== source) continue;
        const time = asked.querySelector("time");
        time.dateTime = at;
        time.title = at.replace("T", " ").replace("Z", " UTC");
      }
    }
    tick();
  });
  // The session is over, or the page's object is gone: the page states it.
  document.addEventListener("reload", () => location.reload());
  document.addEventListener("htmx:after:swap", tick);
  document.addEventListener("visibilitychange", () => {
    heard = Date.now();
    tick();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest?.("input, select, textarea")) return;
    const search = document.querySelector("#filter input[type=search]");
    if (!search) return;
    event.preventDefault();
    search.focus();
  });
  setInterval(tick, 1000);
})();
