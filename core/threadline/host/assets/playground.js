// The playground: one page that talks to one agent over its public HTTP API.

import { Api, Storage } from "./api.js";
import { byId, formatDuration, h, setText } from "./dom.js";
import { Outbox } from "./outbox.js";
import { RawPanel } from "./raw.js";
import { Sidebar } from "./sidebar.js";
import { EventStream } from "./stream.js";
import { Transcript, bubble } from "./transcript.js";

const HIDDEN_PAUSE_MS = 60_000; // a browser has six connections to a host; hidden tabs give theirs back
const QUIET_MS = 400;

const base = location.pathname.replace(/\/playground\/?$/, "");
const storage = new Storage(base);
const api = new Api(base, storage);

const message = byId("message");
const scroller = byId("scroller");
const outboxes = new Map();

let outbox = null; // of the session in view; its `sessionId` names that session
let stream = null;
let stopping = false;
let readOnlyReason = null;
let blocked = null; // why the host does not let this page follow the session

const transcript = new Transcript(byId("log"), {
  textOf: (id) => outbox.find(id)?.text,
  admittedOf: (id) => outbox.find(id)?.admitted,
  decide: (callId, decision, reason) => api.decide(outbox.sessionId, callId, decision, reason),
  artifactUrl: (artifactId) => api.artifact(artifactId),
  loadBlob: (blobId) => api.blob(outbox.sessionId, blobId),
});
const raw = new RawPanel({ onToggle: (open) => document.body.classList.toggle("with-raw", open) });
const sidebar = new Sidebar({
  api,
  storage,
  onOpen: (id) => openSession(id),
  onNew: () => newSession(),
  onBearer: () => {
    hideBanner();
    sidebar.load().then(draw);
    stream?.hurry();
  },
});

// Sessions

function makeOutbox(sessionId) {
  const made = new Outbox({
    api,
    storage,
    sessionId,
    onChange: () => made === outbox && draw(),
    onSession: (id) => started(made, id),
    onRefused: (error) => made === outbox && learn(error),
  });
  if (sessionId) outboxes.set(sessionId, made);
  return made;
}

function started(made, sessionId) {
  outboxes.set(sessionId, made);
  if (made === outbox) {
    setAddress(sessionId, "replace");
    follow(sessionId);
  }
  sidebar.loadSessions();
}

function clear() {
  stream?.close();
  stream = null;
  stopping = false;
  readOnlyReason = null;
  blocked = null;
  transcript.reset();
  raw.reset();
  hideBanner();
  byId("pending").replaceChildren();
  followsEnd = true;
}

/** Show a session. With no id, a new one whose first message starts it. */
function show(sessionId) {
  clear();
  outbox = (sessionId && outboxes.get(sessionId)) || makeOutbox(sessionId);
  if (sessionId) follow(sessionId);
  else setConnection("none");
  sidebar.select(sessionId);
  draw();
  outbox.pump();
}

function openSession(sessionId) {
  if (sessionId === outbox.sessionId) return;
  setAddress(sessionId, "push");
  show(sessionId);
}

function newSession() {
  storage.write("outbox:new", null);
  if (outbox.sessionId) setAddress(null, "push");
  show(null);
  message.focus();
}

function setAddress(sessionId, how) {
  const address = new URL(location.href);
  if (sessionId) address.searchParams.set("sessionId", sessionId);
  else address.searchParams.delete("sessionId");
  history[`${how}State`](null, "", address);
}

const addressed = () => new URL(location.href).searchParams.get("sessionId");

// The stream

function follow(sessionId) {
  byId("log").setAttribute("aria-busy", "true");
  stream = new EventStream({
    open: (startIndex, signal) => api.stream(sessionId, startIndex, signal),
    onBatch: (items) => take(items),
    onState: (state, detail) => setConnection(state, detail),
    onReset: () => {
      transcript.reset();
      raw.reset();
    },
  });
  stream.start();
  sidebar.select(sessionId);
}

let quiet = 0;
let listSoon = 0;

function take(items) {
  raw.add(items);
  for (const { event, missing } of items) {
    if (!event) continue;
    if (missing) transcript.gap(missing);
    const settled = applySafely(event);
    if (settled.length) outbox.settle(settled, event.type === "deliveries.cleared");
  }
  // A replay is not read out; what comes after it is.
  clearTimeout(quiet);
  quiet = setTimeout(() => byId("log").removeAttribute("aria-busy"), QUIET_MS);
  if (items.some(({ event }) => event && /^(session|turn)\./.test(event.type))) {
    clearTimeout(listSoon);
    listSoon = setTimeout(() => sidebar.loadSessions(), 500);
  }
  draw();
}

function applySafely(event) {
  try {
    return transcript.apply(event);
  } catch (error) {
    // One event of an unexpected shape must not hide the rest of the session.
    console.error("could not show event", event, error);
    return [];
  }
}

function setConnection(state, detail = {}) {
  const texts = {
    none: "Not connected",
    connecting: detail.attempt ? "Reconnecting" : "Connecting",
    live: "Live",
    waiting: `Reconnecting in ${Math.ceil((detail.ms ?? 0) / 1000)} s`,
    paused: "Paused",
    ended: "Ended",
    refused: "Refused",
  };
  byId("connection").dataset.state = state;
  setText(byId("connection-text"), texts[state]);
  blocked = state === "refused" ? detail : null;
  if (blocked?.status === 401) sidebar.askForBearer();
  draw();
}

// What the host refused, and what it means for the page

/** Take in what a refusal means for the session; the message itself shows why it was not sent. */
function learn(error) {
  if (error.status === 401) sidebar.askForBearer();
  if (error.code === "stale_token") {
    storage.keepToken(outbox.sessionId, null);
    readOnlyReason = "This session was continued somewhere else, so this tab's token no longer holds.";
  }
  draw();
}

function explain(error) {
  if (error.status === 401) return `${error.message} Enter a bearer token under Access, beside the sessions.`;
  return error.code.startsWith("http_") || !error.status ? error.message : `${error.message} (${error.code})`;
}

function readOnly() {
  const id = outbox.sessionId;
  if (!id) return null;
  if (blocked) return { text: explain(blocked), token: false };
  if (transcript.state.mode === "task") return { text: "A task takes no follow-ups.", token: false };
  if (storage.token(id)) return null;
  const why = readOnlyReason ?? "This tab does not hold the session's continuation token.";
  return { text: `${why} You can read along, or enter the token.`, token: true };
}

function showBanner(text, { token = false, fixed = false } = {}) {
  byId("banner").hidden = false;
  byId("banner").dataset.fixed = String(fixed);
  byId("token-form").hidden = !token;
  byId("banner-close").hidden = fixed;
  setText(byId("banner-text"), text);
}

function hideBanner() {
  byId("banner").hidden = true;
  byId("banner").dataset.fixed = "false";
}

// Drawing

function draw() {
  const { phase, title, position } = transcript.state;
  const active = phase === "running" || phase === "queued";
  if (!active) stopping = false;

  const id = outbox.sessionId;
  if (id && title && !storage.title(id)) storage.keepTitle(id, title);
  setText(byId("session-title"), (id && (title ?? sidebar.titleOf(id))) || (id ? "Session" : "New session"));
  setText(byId("session-id"), id ?? "");
  byId("empty").hidden = Boolean(id) || outbox.visible.length > 0;

  drawActivity(phase, position);
  drawComposer(active);
  drawPending();
  scrollToEnd();
}

function drawActivity(phase, position) {
  const activity = byId("activity");
  activity.dataset.phase = stopping ? "stopping" : phase;
  const running = transcript.parked ? "Waiting for an approval" : "Working";
  const texts = { running, queued: `Waiting for a free slot, position ${position || "?"}`, ended: "Ended" };
  setText(byId("activity-text"), stopping ? "Stopping" : (texts[phase] ?? ""));
  if (phase !== "running") setText(byId("activity-time"), "");
}

function drawComposer(active) {
  const lock = readOnly();
  if (lock) showBanner(lock.text, { token: lock.token, fixed: true });
  else if (byId("banner").dataset.fixed === "true") hideBanner();
  message.disabled = Boolean(lock);
  message.placeholder = lock ? "Read only" : active ? "Type while it works" : "Message the agent";

  const send = byId("send");
  const busy = admission() === "coalesce" ? "Add" : "Interrupt";
  setText(send, transcript.state.phase === "running" ? busy : "Send");
  send.disabled = Boolean(lock) || message.value.trim() === "";

  const stop = byId("stop");
  if (!active && document.activeElement === stop) message.focus();
  stop.hidden = !active;
  stop.disabled = stopping;
  document.body.classList.toggle("active", active);
}

function standing(entry) {
  const { state, attempt, admission: how, admitted, error } = entry;
  if (state === "failed") return ["failed", `Not sent: ${error.message}`];
  if (state === "new") return ["sending", "Waiting to be sent"];
  if (state === "sending") return ["sending", attempt > 1 ? `No answer yet, attempt ${attempt}` : "Sending"];
  if (admitted === "preempted") return ["waiting", "Interrupting the running turn"];
  if (admitted === "queued") {
    if (transcript.state.phase === "queued") return ["waiting", "Joins the waiting turn"];
    return ["waiting", how === "coalesce" ? "Waiting for the next tool boundary" : "Waiting for its turn"];
  }
  return ["accepted", "Accepted"];
}

function drawPending() {
  const place = byId("pending");
  const known = new Map([...place.children].map((node) => [node.dataset.deliveryId, node]));
  for (const entry of outbox.visible) {
    const [outcome, label] = standing(entry);
    const old = known.get(entry.deliveryId);
    known.delete(entry.deliveryId);
    if (old?.dataset.label === label) continue;
    const node = bubble({ ...entry, outcome, label });
    node.dataset.label = label;
    if (entry.state === "failed") node.append(failedActions(entry));
    if (old) old.replaceWith(node);
    else place.append(node);
  }
  for (const gone of known.values()) gone.remove();
}

function failedActions({ deliveryId, text }) {
  const action = (label, run) => h("button", { type: "button", class: "link-button", onclick: run }, label);
  const edit = () => {
    message.value = message.value ? `${message.value}\n${text}` : text;
    outbox.discard(deliveryId);
    grow();
    message.focus();
  };
  return h(
    "div",
    { class: "row end" },
    action("Try again", () => outbox.retry(deliveryId)),
    action("Edit", edit),
    action("Discard", () => outbox.discard(deliveryId)),
  );
}

// Keeping the end in view, unless the reader went up

let followsEnd = true;
let lastTop = 0;

const nearEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;

function scrollToEnd() {
  if (followsEnd) scroller.scrollTop = scroller.scrollHeight;
  byId("jump").hidden = followsEnd || nearEnd();
}

scroller.addEventListener("scroll", () => {
  if (nearEnd()) followsEnd = true;
  else if (scroller.scrollTop < lastTop - 2) followsEnd = false;
  lastTop = scroller.scrollTop;
  byId("jump").hidden = followsEnd || nearEnd();
});
scroller.addEventListener("click", (click) => {
  if (click.target.closest("summary")) followsEnd = false;
});
byId("jump").addEventListener("click", () => {
  followsEnd = true;
  scrollToEnd();
});
new ResizeObserver(scrollToEnd).observe(scroller.firstElementChild);

// Sending and stopping

const admission = () => document.querySelector("input[name=admission]:checked").value;

function send() {
  const text = message.value.trim();
  if (!text || readOnly()) return;
  message.value = "";
  grow();
  followsEnd = true;
  if (byId("banner").dataset.fixed !== "true") hideBanner();
  outbox.add(text, admission());
  message.focus();
}

async function stop() {
  const { phase } = transcript.state;
  if (stopping || !outbox.sessionId || (phase !== "running" && phase !== "queued")) return;
  stopping = true;
  draw();
  try {
    const answer = await api.stop(outbox.sessionId);
    if (answer.stopped === false) stopping = false;
  } catch (error) {
    stopping = false;
    learn(error);
    showBanner(explain(error));
  }
  draw();
}

function grow() {
  message.style.height = "auto";
  message.style.height = `${Math.min(message.scrollHeight + 2, 220)}px`;
  drawComposer(["running", "queued"].includes(transcript.state.phase));
}

message.addEventListener("input", grow);
message.addEventListener("keydown", (key) => {
  // An input method uses Enter to finish a word.
  if (key.key !== "Enter" || key.shiftKey || key.isComposing || key.keyCode === 229) return;
  key.preventDefault();
  send();
});
byId("composer").addEventListener("submit", (submit) => {
  submit.preventDefault();
  send();
});
byId("admission").addEventListener("change", () => draw());
byId("stop").addEventListener("click", stop);
byId("banner-close").addEventListener("click", hideBanner);
byId("token-form").addEventListener("submit", (submit) => {
  submit.preventDefault();
  const token = byId("token").value.trim();
  if (!token) return;
  storage.keepToken(outbox.sessionId, token);
  byId("token").value = "";
  readOnlyReason = null;
  draw();
  message.focus();
});
document.addEventListener("keydown", (key) => {
  if (key.key !== "Escape" || key.isComposing) return;
  if (sidebar.drawerOpen) sidebar.drawer(false);
  else if (raw.open && matchMedia("(max-width: 1100px)").matches) raw.show(false);
  else stop();
});

// The rest of the world

addEventListener("popstate", () => show(addressed()));
addEventListener("online", () => stream?.hurry());

let hidden = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) hidden = setTimeout(() => stream?.pause(), HIDDEN_PAUSE_MS);
  else stream?.start();
});

setInterval(() => {
  const { phase, since } = transcript.state;
  if (phase !== "running") return;
  const elapsed = (at) => formatDuration(Math.max(0, Date.now() - Date.parse(at)));
  if (since) setText(byId("activity-time"), elapsed(since));
  for (const node of byId("log").querySelectorAll("[data-since]")) setText(node, elapsed(node.dataset.since));
}, 250);

show(addressed());
sidebar.load().then(draw);
message.focus();
