// Keeps the live part of a page up to date; all else is plain HTML.
"use strict";
(() => {
  // What came of a action is told once, and not again when the page is loaded anew.
  const here = new URL(location.href);
  if (here.searchParams.has("done")) {
    here.searchParams.delete("done");
    history.replaceState(null, "", here);
  }

  // A second click sends nothing; the server would not act twice either.
  for (const form of document.querySelectorAll("form[method=post]"))
    form.addEventListener("submit", () => setTimeout(() => disable(form, true)));
  window.addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[method=post]")) disable(form, false);
  });

  function disable(form, whether) {
    for (const button of form.querySelectorAll("button")) button.disabled = whether;
  }

  // A proxy may answer a form with a page of another site, for signing in. Some browsers show it, some show nothing.
  document.addEventListener("securitypolicyviolation", ({ effectiveDirective }) => {
    if (effectiveDirective !== "form-action") return;
    document.getElementById("connection").textContent =
      "You are signed out. Sign in in another window, then try again here: what is done already is not done twice.";
    for (const form of document.querySelectorAll("form[method=post]")) disable(form, false);
  });

  const live = document.getElementById("live");
  if (!live) return;
  const connection = document.getElementById("connection");
  const EVERY = 2000, PATIENCE = 10000, LONGEST = 30000;
  let pause = EVERY, answered = new Date(), timer = 0, asking = false, tag = "";

  // What somebody has opened, chosen or typed stays as it is.
  const kept = (element, name) =>
    (name === "open" && element.tagName === "DETAILS") ||
    (name === "checked" && element.tagName === "INPUT");

  function change(old, fresh) {
    for (const { name, value } of fresh.attributes)
      if (!kept(old, name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes])
      if (!kept(old, name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
    changeContents(old, fresh);
  }

  // Not `node.id`: a form's may be its field of that name.
  const idOf = (node) => (node.nodeType === Node.ELEMENT_NODE && node.getAttribute("id")) || "";
  const alike = (one, other) => one && one.nodeName === other.nodeName && idOf(one) === idOf(other);

  // Nodes stay where they are if they can, so that focus and selection do.
  function changeContents(old, fresh) {
    const coming = new Set([...fresh.childNodes].map(idOf).filter(Boolean));
    let at = old.firstChild;
    for (const node of [...fresh.childNodes]) {
      while (at && idOf(at) && !coming.has(idOf(at))) at = drop(at);
      if (at && at.nodeType === Node.TEXT_NODE && node.nodeType !== Node.TEXT_NODE) at = drop(at);
      let match = alike(at, node) ? at : null;
      if (!match && idOf(node)) match = [...old.childNodes].find((each) => alike(each, node)) || null;
      if (!match) {
        old.insertBefore(document.importNode(node, true), at);
      } else {
        if (match !== at) old.insertBefore(match, at);
        if (node.nodeType === Node.ELEMENT_NODE) change(match, node);
        else if (match.data !== node.data) match.data = node.data;
        at = match.nextSibling;
      }
    }
    while (at) at = drop(at);
  }

  function drop(node) {
    const next = node.nextSibling;
    node.remove();
    return next;
  }

  function retitle() {
    const verdict = live.querySelector("[data-title]");
    if (verdict) document.title = `${verdict.dataset.title} · outbox`;
  }

  const clock = (at) => at.toTimeString().slice(0, 8);

  function say(text) {
    if (connection.textContent !== text) connection.textContent = text;
    document.body.classList.toggle("unanswered", text !== "");
  }

  async function show(answer) {
    const text = await answer.text();
    const fresh = new DOMParser().parseFromString(`<div>${text}</div>`, "text/html").body.firstChild;
    const focused = document.activeElement;
    changeContents(live, fresh);
    if (focused !== document.activeElement && live.contains(focused)) focused.focus({ preventScroll: true });
    retitle();
    tag = answer.headers.get("ETag") || "";
  }

  // The more look, the longer a pause the server tells each of them.
  function told(answer) {
    const seconds = Number(answer.headers.get("Outbox-Pause"));
    return seconds > 0 ? Math.min(seconds * 1000, LONGEST) : EVERY;
  }

  async function ask() {
    if (asking || document.hidden) return;
    asking = true;
    const address = live.dataset.live;
    try {
      const answer = await fetch(address, {
        headers: tag ? { "If-None-Match": tag } : {},
        redirect: "manual",
        signal: AbortSignal.timeout(PATIENCE),
      });
      const same = answer.status === 304;
      if ([401, 403].includes(answer.status) || answer.type === "opaqueredirect") {
        say("You are signed out: load this page anew.");
        pause = LONGEST;
      } else if (!answer.ok && !same) {
        throw new Error(answer.status);
      } else {
        if (!same && address === live.dataset.live) await show(answer);
        answered = new Date();
        pause = told(answer);
        say("");
      }
    } catch {
      say(`No answer since ${clock(answered)}: what is shown may be out of date.`);
      pause = Math.min(pause * 1.5, LONGEST);
    }
    asking = false;
    if (address === live.dataset.live) next();
    else ask();
  }

  function next() {
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(ask, pause);
  }

  // Outboxes are searched for while somebody types; the address is that of the same search without scripts.
  const filter = document.getElementById("filter");
  if (filter) {
    let typing = 0;
    const search = () => {
      const wanted = new URLSearchParams([...new FormData(filter)].filter(([, value]) => value));
      history.replaceState(null, "", `${location.pathname}?${wanted}`);
      live.dataset.live = `${live.dataset.live.split("?")[0]}?${wanted}`;
      tag = "";
      ask();
    };
    filter.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(search, 200);
    });
    filter.addEventListener("submit", (event) => {
      event.preventDefault();
      search();
    });
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (!document.hidden) ask();
  });
  retitle();
  next();
})();
