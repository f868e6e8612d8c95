// Keeps times relative and local, and states when the console does not answer. All else works without this script.
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

  // A time in the reader's zone, as a field for a time has it.
  const local = (at) => new Date(at - new Date(at).getTimezoneOffset() * 60000).toISOString().slice(0, 19);

  function tick() {
    const now = Date.now();
    for (const time of document.querySelectorAll("time")) {
      const at = Date.parse(time.dateTime);
      const text = time.className === "clock" ? local(at).slice(11, 16) : ago(now - at);
      if (time.textContent !== text) time.textContent = text;
      const title = local(at).replace("T", " ") + " local time, " + time.dateTime.replace("T", " ").replace("Z", " UTC");
      if (time.title !== title) time.title = title;
    }
    for (const field of document.querySelectorAll("input[type=datetime-local]:not([data-local])")) {
      field.dataset.local = "";
      if (field.value) field.value = local(Date.parse(field.value + "Z"));
      const label = field.labels[0].firstChild;
      label.textContent = label.textContent.replace("UTC", "local time");
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
        asked.querySelector("time").dateTime = at;
      }
    }
    tick();
  });
  // The session is over, or the page's object is gone: the page states it.
  document.addEventListener("reload", () => location.reload());
  document.addEventListener("htmx:after:swap", tick);

  // A list keeps its rows while the pointer or the focus of the keyboard is on it. The newest state is held until then, or until a click.
  let held = null;
  const list = ".scroll";
  const reading = () => document.querySelector(`${list}:is(:hover, :focus-visible, :has(:focus-visible))`);
  const rows = (root) => [...root.querySelectorAll("[data-row]")].map((row) => row.dataset.row).join("\n");
  function hold(text) {
    held = text;
    document.querySelector("#held").hidden = text === null;
  }
  function release() {
    const live = document.querySelector("#live");
    if (held === null || !live) return;
    htmx.swap({sourceElement: live, target: live, swap: live.getAttribute("hx-swap"), text: held});
    hold(null);
  }
  document.addEventListener("htmx:sse:before:message", (event) => {
    const {event: name, data} = event.detail.message;
    if (name) return;
    const moves = reading() && rows(new DOMParser().parseFromString(data, "text/html")) !== rows(document);
    hold(moves ? data : null);
    if (moves) event.preventDefault();
  });
  document.querySelector("#held")?.addEventListener("click", release);
  for (const moved of ["pointerover", "pointerout", "focusin", "focusout"]) {
    document.addEventListener(moved, () => setTimeout(() => reading() || release()));
  }
  document.addEventListener("visibilitychange", () => {
    heard = Date.now();
    tick();
  });
  // The value of a chart under the pointer. The line has the values: its coordinates are those of the picture.
  document.addEventListener("pointermove", (event) => {
    const svg = event.target.closest?.("svg[data-top]");
    for (const shown of document.querySelectorAll("figure output")) {
      if (shown.textContent && shown.closest("figure") !== svg?.closest("figure")) shown.textContent = "";
    }
    const path = svg?.querySelector(".line")?.getAttribute("d").match(/[\d.]+ [\d.]+/g);
    if (!path) return;
    const {width, height} = svg.viewBox.baseVal;
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * width;
    const points = path.map((point) => point.split(" ").map(Number));
    const [x, y] = points.reduce((near, point) => Math.abs(point[0] - at) < Math.abs(near[0] - at) ? point : near);
    const {top, begin, end} = svg.dataset;
    const value = (height - 1.5 - y) / (height - 3) * top;
    const when = Number(begin) + x / width * (end - begin);
    svg.closest("figure").querySelector("output").textContent =
      local(when).slice(11, 16) + ": " + Math.max(0, value).toLocaleString("en", {maximumFractionDigits: top < 20 ? 1 : 0});
  });
  // The console takes times in UTC.
  document.addEventListener("formdata", (event) => {
    for (const field of event.target.querySelectorAll("input[data-local]")) {
      if (field.value) event.formData.set(field.name, new Date(field.value).toISOString().slice(0, 19));
    }
  });
  // On a narrow screen a filter shows its first two fields, unless another is in use.
  const filter = document.querySelector("#filter");
  const more = [...filter?.querySelectorAll("label:nth-of-type(n + 3) :is(input, select)") ?? []];
  if (more.length > 0 && more.every((field) => !field.value)) {
    const all = filter.querySelector(".more");
    all.hidden = false;
    filter.classList.add("compact");
    all.addEventListener("click", () => {
      all.hidden = true;
      filter.classList.remove("compact");
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest?.("input, select, textarea")) return;
    const search = document.querySelector("#filter input[type=search]");
    if (!search) return;
    event.preventDefault();
    search.focus();
  });
  tick();
  setInterval(tick, 1000);
})();
