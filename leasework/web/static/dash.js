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

    // -- live: refresh every two seconds, unless somebody is reading, typing or has opened something
    const busy = () => {
      const live = document.getElementById("live");
      const held = live && live.contains(document.activeElement) && document.activeElement !== live;
      const open = live && live.querySelector("details[open]");
      return paused || document.hidden || held || open || String(getSelection()) !== "";
    };
    const show = (text, name) => { link.textContent = text; link.className = "link " + name; };
    const outdated = (yes) => document.querySelector("#live:not(.problem)")?.classList.toggle("outdated", yes);
    const look = () => { if (!busy() && window.htmx) htmx.trigger(body, "look"); };
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
        show(data.away ? "database unavailable" : paused ? "paused" : "live", data.away ? "bad" : paused ? "" : "on");
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
    body.addEventListener("htmx:afterSettle", () => { mark(place); });

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
        p: () => { paused = !paused; show(paused ? "paused" : "live", paused ? "" : "on"); },
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
