// The conversation: a fold of the session's events into nodes, one section a turn.

import { ToolCard } from "./cards.js";
import { copyButton, formatDuration, formatNumber, formatTime, h, setText } from "./dom.js";
import { renderMarkdown, safeUrl } from "./markdown.js";

export const OUTCOMES = {
  started: "Started a turn",
  prompted: "Prompted in the next turn",
  interrupted: "Interrupted the turn before",
  steered: "Steered into the running turn",
  cleared: "Cleared",
};

const ENDINGS = {
  stopped: "Stopped",
  preempted: "Interrupted by the next message",
  host_restarted: "Interrupted: the host restarted",
  host_shutdown: "Interrupted: the host shut down",
};

/** A person's message with what became of it. */
export function bubble({ text, outcome, label, deliveryId = null, sender = null, at = null }) {
  const who = sender?.name || sender?.id;
  const chip = h("span", { class: "chip", "data-outcome": outcome }, label);
  const time = at ? h("time", { class: "muted", datetime: at }, formatTime(at)) : null;
  const meta = h("div", { class: "bubble-meta" }, who ? h("span", {}, who) : null, chip, time);
  return h(
    "div",
    { class: "bubble", "data-outcome": outcome, "data-delivery-id": deliveryId },
    h("span", { class: "visually-hidden" }, "You said: "),
    h("div", { class: "bubble-text" }, text),
    meta,
  );
}

const note = (text, kind = "") => h("p", { class: `note ${kind}` }, text);

/** Streamed text whose rendering never takes more than a fraction of the time. */
class StreamedText {
  #pending = 0;
  #cost = 0;

  constructor(node, render) {
    this.node = node;
    this.render = render;
    this.text = "";
    node.setAttribute("aria-busy", "true");
  }

  append(delta) {
    this.text += delta;
    if (this.#pending) return;
    this.#pending = setTimeout(() => this.#draw(), Math.max(30, this.#cost * 8));
  }

  finish(text) {
    clearTimeout(this.#pending);
    this.text = text;
    this.#draw();
    this.node.removeAttribute("aria-busy");
  }

  #draw() {
    this.#pending = 0;
    const before = performance.now();
    this.render(this.node, this.text);
    this.#cost = performance.now() - before;
  }
}

const drawMarkdown = (node, text) => node.replaceChildren(renderMarkdown(text));
const drawPlain = (node, text) => setText(node, text);

export class Transcript {
  /**
   * `textOf(deliveryId)` and `admittedOf(deliveryId)` tell what this tab knows of a delivery;
   * `decide(callId, decision, reason)`, `artifactUrl(id)` and `loadBlob(blobId)` call the host.
   */
  constructor(container, { textOf, admittedOf, decide, loadBlob, artifactUrl }) {
    Object.assign(this, { container, textOf, admittedOf, decide, loadBlob, artifactUrl });
    this.reset();
  }

  reset() {
    this.container.replaceChildren();
    this.turns = new Map();
    this.turn = null;
    this.cards = new Map();
    this.texts = new Map();
    this.lastEnd = null;
    this.state = { phase: "idle", position: 0, since: null, mode: "chat", title: null, agent: null };
  }

  /** The running turn waits for a person's decision. */
  get parked() {
    return this.turn?.cards.some((card) => card.state === "waiting") ?? false;
  }

  /** Fold one event; return the ids of the deliveries whose outcome it tells. */
  apply(event) {
    const handler = this[`on_${event.type.replaceAll(".", "_")}`];
    return handler?.call(this, event.data ?? {}, event) ?? [];
  }

  gap(count) {
    this.#place(note(`${formatNumber(count)} events before this point could not be read.`));
  }

  // Session

  on_session_started(data, event) {
    Object.assign(this.state, { mode: data.mode ?? "chat", title: data.title ?? null, agent: data.agent ?? null });
    const facts = [`Session started ${formatTime(event.at)}`, data.channel && `channel ${data.channel}`];
    if (data.mode === "task") facts.push("task");
    if (data.dryRun) facts.push("dry run: write tools are stubbed");
    if (data.asOf) facts.push(`as of ${data.asOf}`);
    if (data.purpose) facts.push(data.purpose);
    this.container.append(note(facts.filter(Boolean).join(" · ")));
  }

  on_session_waiting() {
    this.#rest("idle");
  }

  on_session_completed() {
    this.#rest("ended");
    this.container.append(note("Task completed."));
  }

  on_session_failed({ error }) {
    this.#rest("ended");
    this.container.append(note(`Session failed: ${error?.message || error?.code || "unknown"}`, "bad"));
  }

  on_agent_bound({ harness, url }) {
    const href = url && safeUrl(url);
    const where = href ? h("a", { href, target: "_blank", rel: "noopener noreferrer" }, "its conversation") : "its own conversation";
    this.#place(h("p", { class: "note" }, `${harness || "The harness"} keeps `, where, "."));
  }

  on_artifact_tagged({ kind, key, title, artifactId }) {
    const line = note(`Artifact: ${title || key || artifactId}${kind ? ` (${kind})` : ""} `);
    line.append(h("a", { href: this.artifactUrl(artifactId), download: "" }, "Download"));
    this.#place(line);
  }

  on_feedback_given({ rating, by, comment }) {
    const who = by?.name || by?.id || "somebody";
    const words = rating === "negative" ? "Not helpful" : "Helpful";
    this.#place(note(`${words}, says ${who}${comment ? `: ${comment}` : "."}`));
  }

  on_log_recovered({ from, to }) {
    this.#place(note(`The log goes on after a power cut; numbers ${from} to ${to} are not used.`));
  }

  // What people said

  on_message_received(data, event) {
    const turn = this.#openTurn(event);
    const parts = data.parts?.length ? data.parts : [{ text: data.text ?? "", deliveryId: data.deliveryIds?.[0] }];
    parts.forEach((part, i) => {
      const outcome = this.#prompted(part, i === parts.length - 1);
      turn.body.append(bubble({ ...part, outcome, label: OUTCOMES[outcome], at: part.at ?? event.at }));
    });
    this.state.title ??= parts[0].text.slice(0, 80);
    if (parts.length > 1) turn.body.append(note(`${parts.length} messages, answered together`));
    if (data.context?.length) turn.body.append(folded("Context added to the prompt", data.context.join("\n\n")));
    for (const file of data.attachments ?? []) turn.body.append(note(`Attached: ${file?.name ?? file?.path ?? "a file"}`));
    return data.deliveryIds ?? [];
  }

  /** From the answer this tab got, or else from the times in the log. */
  #prompted(part, last) {
    const answer = this.admittedOf(part.deliveryId);
    const admitted = answer === "duplicate" ? null : answer; // the first answer was lost
    const end = this.lastEnd;
    const waited = Boolean(end && part.at && Date.parse(part.at) < Date.parse(end.at));
    if (end?.code === "preempted" && (admitted === "preempted" || (!admitted && waited && last))) return "interrupted";
    return waited || admitted === "queued" ? "prompted" : "started";
  }

  on_nudge_delivered({ text, deliveryId, sender }, event) {
    const label = OUTCOMES.steered;
    this.#ofTurn(event).body.append(bubble({ text, deliveryId, sender, at: event.at, outcome: "steered", label }));
    return deliveryId ? [deliveryId] : [];
  }

  on_deliveries_cleared({ deliveryIds = [], reason }) {
    const why = reason ? `: ${reason}` : "";
    const unknown = deliveryIds.filter((id) => !this.textOf(id));
    for (const deliveryId of deliveryIds) {
      const text = this.textOf(deliveryId);
      if (text) this.#place(bubble({ text, deliveryId, outcome: "cleared", label: OUTCOMES.cleared + why }));
    }
    if (unknown.length) this.#place(note(`${unknown.length} waiting ${unknown.length === 1 ? "message" : "messages"} cleared${why}`));
    return deliveryIds;
  }

  // Turns

  on_turn_queued({ position }, event) {
    const turn = this.#openTurn(event);
    turn.queued ??= turn.body.appendChild(note(""));
    setText(turn.queued, `Waiting for a free slot, position ${position ?? "?"}`);
    Object.assign(this.state, { phase: "queued", position: position ?? 0, since: event.at });
  }

  on_turn_started({ resumes, attempt }, event) {
    const turn = this.#openTurn(event);
    turn.queued?.remove();
    turn.section.dataset.status = "running";
    turn.startedAt = event.at;
    if (resumes) turn.body.append(note(`Continues the interrupted turn${attempt ? `, attempt ${attempt}` : ""}`));
    Object.assign(this.state, { phase: "running", since: event.at });
  }

  on_turn_completed(data, event) {
    const turn = this.#ofTurn(event);
    if (!turn.answer && typeof data.result === "string" && data.result) this.#message(turn, data.result);
    const facts = [formatDuration(data.durationMs ?? Number.NaN), ...usageFacts(data.usage)];
    facts.push(Number.isFinite(data.costUsd) ? `$${data.costUsd.toFixed(4)}` : "cost unknown");
    this.#endTurn(turn, event, "completed", facts);
  }

  on_turn_failed(data, event) {
    const turn = this.#ofTurn(event);
    const { status = "failed", code = "unknown", message = "" } = data;
    const bad = status === "failed";
    const title = ENDINGS[code] ?? (bad ? "The turn failed" : `The turn was ${status}`);
    const detail = h("span", { class: "muted" }, bad ? message || code : message);
    const badge = h("code", { class: "code-name" }, code);
    turn.body.append(h("div", { class: `ending ${bad ? "bad" : ""}`, "data-code": code }, h("strong", {}, title), badge, detail));
    turn.queued?.remove();
    this.#endTurn(turn, event, status, usageFacts(data.usage));
    this.lastEnd.code = code;
  }

  #endTurn(turn, event, status, facts) {
    for (const card of turn.cards) card.close();
    for (const text of turn.texts) if (!text.done) this.#finishText(text, text.stream.text);
    turn.section.dataset.status = status;
    const shown = facts.filter(Boolean).join(" · ");
    const copy = turn.answer ? copyButton(() => turn.answer, "Copy answer") : null;
    if (shown || copy) turn.section.append(h("footer", { class: "turn-foot muted small" }, h("span", {}, shown), copy));
    this.lastEnd = { at: event.at, code: null };
    // The next turn may have been announced before; only an event of its own opens it again.
    if (this.turn === turn) this.turn = null;
    Object.assign(this.state, { phase: "idle", since: null });
  }

  #rest(phase) {
    Object.assign(this.state, { phase, since: null });
  }

  // Steps

  on_reasoning_appended({ blockId, delta }, event) {
    this.#reasoning(event, blockId).stream.append(delta ?? "");
  }

  on_reasoning_completed({ blockId, text }, event) {
    this.#finishText(this.#reasoning(event, blockId), text ?? "");
  }

  #reasoning(event, blockId) {
    return this.#text(event, `reasoning:${blockId}`, (turn) => {
      const summary = h("summary", {}, "Thinking");
      const body = h("div", { class: "reasoning-text" });
      const node = h("details", { class: "reasoning" }, summary, body);
      turn.body.append(node);
      const whenDone = () => setText(summary, "Thought");
      return { node, stream: new StreamedText(body, drawPlain), whenDone };
    });
  }

  on_message_appended({ messageId, delta }, event) {
    this.#messageText(event, messageId).stream.append(delta ?? "");
  }

  on_message_completed({ messageId, text = "", finishReason, parentCallId }, event) {
    const turn = this.#ofTurn(event);
    const entry = this.#messageText(event, messageId, parentCallId);
    this.#finishText(entry, text);
    if (!text.trim()) entry.node.remove();
    else if (!parentCallId && finishReason === "stop") {
      entry.node.classList.add("final");
      turn.answer = text;
    }
  }

  #messageText(event, messageId, parentCallId = null) {
    return this.#text(event, `message:${messageId}`, (turn) => {
      const parent = this.cards.get(parentCallId);
      return this.#messageBlock(parent?.body ?? turn.body);
    });
  }

  #messageBlock(where) {
    const body = h("div", { class: "markdown" });
    const node = h("div", { class: "answer" }, h("span", { class: "visually-hidden" }, "Agent said: "), body);
    where.append(node);
    return { node, stream: new StreamedText(body, drawMarkdown) };
  }

  #message(turn, text) {
    const entry = this.#messageBlock(turn.body);
    entry.stream.finish(text);
    turn.answer = text;
  }

  #text(event, key, make) {
    const turn = this.#ofTurn(event);
    const id = `${turn.id}:${key}`;
    let entry = this.texts.get(id);
    if (!entry) {
      entry = make(turn);
      this.texts.set(id, entry);
      turn.texts.push(entry);
    }
    return entry;
  }

  #finishText(entry, text) {
    entry.stream.finish(text);
    entry.done = true;
    entry.whenDone?.();
  }

  // Tools

  on_actions_requested({ calls = [] }, event) {
    for (const call of calls) this.#card(event, call);
  }

  on_action_result(data, event) {
    this.#card(event, data).finish(data, this.loadBlob);
  }

  on_action_tool_retry(data, event) {
    this.#card(event, data).retry(data);
  }

  on_action_approval_requested(data, event) {
    this.#card(event, data).askApproval(data, this.decide);
  }

  on_action_approval_resolved(data, event) {
    this.#card(event, data).resolveApproval(data);
  }

  on_subagent_called({ callId, agent, prompt }, event) {
    if (this.cards.has(callId)) return;
    this.#card(event, { callId, toolName: agent, input: prompt, kind: "subagent" });
  }

  on_subagent_completed({ callId, agent, isError, result }, event) {
    const card = this.#card(event, { callId, toolName: agent, kind: "subagent" });
    // The call itself may have a result of its own, which then is the authority.
    if (card.open && card.node.dataset.kind === "subagent") {
      card.finish({ isError, output: result, durationMs: Date.parse(event.at) - Date.parse(card.startedAt) });
    }
  }

  #card(event, { callId, toolName, input, effect, kind }) {
    let card = this.cards.get(callId);
    if (!card) {
      const turn = this.#ofTurn(event);
      card = new ToolCard({ callId, toolName, input, effect, kind, startedAt: event.at });
      card.startedAt = event.at;
      if (kind) card.node.dataset.kind = kind;
      this.cards.set(callId, card);
      turn.cards.push(card);
      turn.body.append(card.node);
    }
    return card;
  }

  // Where things go

  #openTurn(event) {
    const id = event.turnId ?? `at-${event.index}`;
    let turn = this.turns.get(id);
    if (!turn) {
      const body = h("div", { class: "turn-body" });
      const section = h("section", { class: "turn", "data-turn-id": id, "data-status": "queued", "aria-label": `Turn ${this.turns.size + 1}` }, body);
      this.container.append(section);
      turn = { id, section, body, cards: [], texts: [], answer: null };
      this.turns.set(id, turn);
    }
    this.turn = turn;
    return turn;
  }

  #ofTurn(event) {
    if (event.turnId) return this.turns.get(event.turnId) ?? this.#openTurn(event);
    return this.turn ?? this.#openTurn(event);
  }

  /** Put a node where the reader is: into the open turn, or behind everything. */
  #place(node) {
    (this.turn?.body ?? this.container).append(node);
  }
}

function folded(title, text) {
  return h("details", { class: "reasoning" }, h("summary", {}, title), h("div", { class: "reasoning-text" }, text));
}

function usageFacts(usage) {
  if (!usage) return [];
  const facts = [];
  if (usage.inputTokens || usage.outputTokens) {
    facts.push(`${formatNumber(usage.inputTokens)} tokens in`, `${formatNumber(usage.outputTokens)} out`);
  }
  if (usage.cacheReadTokens) facts.push(`${formatNumber(usage.cacheReadTokens)} from cache`);
  if (usage.cacheWriteTokens) facts.push(`${formatNumber(usage.cacheWriteTokens)} to cache`);
  if (usage.requests) facts.push(`${usage.requests} model ${usage.requests === 1 ? "request" : "requests"}`);
  return facts;
}
