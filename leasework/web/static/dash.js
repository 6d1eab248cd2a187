// Theme, keys and the live updates. All pages work without it.
"use strict";
(() => {
  const root = document.documentElement;
  const kept = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private mode */ } };
  const theme = kept("leasework-theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;

  const swapTheme = () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    keep("leasework-theme", root.dataset.theme);
  };

  document.addEventListener("DOMContentLoaded", () => {
    const body = document.body;
    const link = document.getElementById("link");
    const help = document.getElementById("help");
    const pages = document.querySelector(".side nav");
    const current = pages?.querySelector("[aria-current]");
    if (current) pages.scrollLeft = current.offsetLeft - (pages.clientWidth - current.offsetWidth) / 2;
    let paused = false;

    // -- live: refresh every two seconds, unless somebody is reading, typing, has opened something, or is
    // about to click on a row of a list whose rows move
    const busy = () => {
      const live = document.getElementById("live");
      if (paused) return "paused";
      if (document.querySelector("#live td.pick :checked")) return "paused: rows are selected";
      if (live?.contains(document.activeElement) && document.activeElement !== live) return "paused: in use";
      if (document.querySelector("#live details[open]")) return "paused: something is open";
      if (document.querySelector("#live .jobs tbody:hover")) return "paused: you point at the list";
      return String(getSelection()) !== "" ? "paused: text is selected" : "";
    };
    const show = (text, name) => { if (link.textContent !== text) link.textContent = text; link.className = "link " + name; };
    const tell = () => show(busy() || "live", busy() ? "" : "on");
    for (const kind of ["change", "focusin", "focusout", "mouseover"]) document.addEventListener(kind, () => setTimeout(() => { if (/^(live|paused)/.test(link.textContent)) tell(); }));
    const outdated = (yes) => document.querySelector("#live:not(.problem)")?.classList.toggle("outdated", yes);
    const look = () => { if (!busy() && !document.hidden && window.htmx) htmx.trigger(body, "look"); };
    const live = new URL(body.dataset.live, location.origin); // without a name and password of the page's URL
    let failed = 0;
    const pulse = async () => {
      try {
        if (document.hidden) return;
        // as htmx asks: without a session the answer is a 401 that shows no prompt
        const asked = { headers: { "HX-Request": "true" }, signal: AbortSignal.timeout(4000) };
        const answer = await fetch(live, asked);
        if (answer.status === 401) { show("logged out", "bad"); outdated(true); return look(); }
        if (!answer.ok) throw new Error(answer.status);
        const data = await answer.json();
        failed = 0;
        const badge = document.getElementById("troubles");
        if (badge) { badge.textContent = data.problems; badge.hidden = !data.problems; }
        outdated(data.away);
        if (data.away) show("database unavailable", "bad");
        else tell();
        look();
      } catch {
        failed += 1;
        if (failed > 1) { show("disconnected", "bad"); outdated(true); }
      } finally {
        setTimeout(pulse, 2000);
      }
    };
    if (document.getElementById("live")) pulse();
    let place = -1;
    // what was asked before somebody began to type must not take the form away
    body.addEventListener("htmx:beforeSwap", (event) => { if (busy()) event.detail.shouldSwap = false; });
    body.addEventListener("htmx:afterSettle", () => { mark(place); });

    // -- local time in place of UTC, which stays in the title
    const utc = /(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC/;
    const parts = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" };
    const format = new Intl.DateTimeFormat("sv", parts);
    const here = (text) => text.replace(utc, (_, day, time) => format.format(new Date(`${day}T${time}Z`)));
    const localize = () => {
      if (!new Date().getTimezoneOffset()) return;
      for (const time of document.querySelectorAll("main time:not([data-utc])")) {
        time.dataset.utc = time.title || time.textContent;
        if (time.title) time.title = `${here(time.title)} = ${time.title}`;
        else if (utc.test(time.textContent)) { time.title = time.textContent; time.textContent = here(time.title); }
        else { time.title = time.dateTime; time.textContent = ruled(new Date(time.dateTime), time.textContent.length); }
      }
      for (const said of document.querySelectorAll("main svg title, main .ticks .hide")) said.textContent = here(said.textContent);
      for (const tick of document.querySelectorAll("main .ticks > [title]")) tick.title = here(tick.title);
    };
    const ruled = (at, length) => at.toLocaleString("en-GB", { ...(length > 5 && { day: "2-digit", month: "short" }), hour: "2-digit", minute: "2-digit" }).replace(",", "");
    localize();
    new MutationObserver(localize).observe(document.getElementById("main"), { childList: true });
    const zone = format.formatToParts().find((part) => part.type === "timeZoneName").value;
    document.getElementById("zone").textContent = `Times in ${zone}`;

    // -- selected rows
    const picks = () => [...document.querySelectorAll("#live td.pick input")];
    const all = () => document.getElementById("all");
    const pick = () => {
      const count = picks().filter((box) => box.checked).length;
      const says = document.getElementById("picks");
      if (says && count) says.textContent = `${count} selected:`;
      if (all()) all().checked = count > 0 && count === picks().length;
    };
    const showAll = () => { if (all()) all().hidden = false; };
    document.addEventListener("change", (event) => {
      if (event.target.id === "all") for (const box of picks()) box.checked = event.target.checked;
      pick();
    });
    body.addEventListener("htmx:afterSettle", showAll);
    showAll();

    // -- keys
    const rows = () => [...document.querySelectorAll("a.row")];
    const mark = (next) => {
      const all = rows();
      for (const row of all) row.closest("tr").classList.remove("at");
      place = Math.max(-1, Math.min(next, all.length - 1));
      if (place >= 0) {
        const line = all[place].closest("tr");
        line.classList.add("at");
        return line;
      }
    };
    let going = 0;
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const typing = event.target.closest("input, select, textarea");
      if (typing) { if (event.key === "Escape") typing.blur(); return; }
      if (help.open) return;
      if (Date.now() - going < 1500) {
        going = 0;
        const page = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
        if (page) { event.preventDefault(); page.click(); }
        return;
      }
      const acts = {
        g: () => { going = Date.now(); },
        t: swapTheme,
        p: () => { paused = !paused; tell(); },
        "/": () => document.getElementById("q")?.focus(),
        "?": () => help.showModal(),
        j: () => mark(place + 1)?.scrollIntoView({ block: "nearest" }),
        k: () => mark(Math.max(place - 1, 0))?.scrollIntoView({ block: "nearest" }),
      };
      if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
      else if (event.key === "Enter" && place >= 0 && event.target === body) rows()[place]?.click();
    });
    document.getElementById("theme").addEventListener("click", swapTheme);
    document.getElementById("keys").addEventListener("click", () => help.showModal());
  });
})();
