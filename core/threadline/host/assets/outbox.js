// Sending: one message at a time per session, each under its own delivery id, until it is answered.
//
// The id makes a repeated request harmless: the host returns its first answer, token included. So a
// lost answer, a reload or a restart of the host neither doubles a message nor loses the token.

import { backoff, newId, sleep } from "./dom.js";

const ATTEMPTS = 9; // about a minute and a half

export class Outbox {
  #running = false;

  /** `onChange()` after any change; `onSession(id)` once; `onRefused(error)` when the host says no. */
  constructor({ api, storage, sessionId = null, onChange, onSession, onRefused }) {
    Object.assign(this, { api, storage, sessionId, onChange, onSession, onRefused });
    this.entries = (storage.read(this.#key) ?? []).map((entry) => ({
      ...entry,
      state: entry.state === "sending" ? "new" : entry.state,
    }));
  }

  get #key() {
    return `outbox:${this.sessionId ?? "new"}`;
  }

  find(deliveryId) {
    return this.entries.find((entry) => entry.deliveryId === deliveryId);
  }

  /** What is still on its way: not named by any event so far. */
  get visible() {
    return this.entries.filter((entry) => !entry.settled);
  }

  add(text, admission) {
    // In the log, yet never answered: ask again first, since the answer holds the next token.
    for (const entry of this.entries) {
      if (entry.settled && entry.state === "failed") Object.assign(entry, { state: "new", attempt: 0 });
    }
    this.entries.push({ deliveryId: newId(), text, admission, state: "new", attempt: 0 });
    this.#changed();
    this.pump();
  }

  retry(deliveryId) {
    const entry = this.find(deliveryId);
    if (entry?.state !== "failed") return;
    Object.assign(entry, { state: "new", attempt: 0, error: null });
    this.#changed();
    this.pump();
  }

  discard(deliveryId) {
    this.entries = this.entries.filter((entry) => entry.deliveryId !== deliveryId);
    this.#changed();
  }

  /** An event named these deliveries: the log shows them from now on. */
  settle(deliveryIds, cleared = false) {
    let changed = false;
    for (const id of deliveryIds) {
      const entry = this.find(id);
      if (!entry || entry.settled) continue;
      Object.assign(entry, { settled: true, cleared });
      changed = true;
    }
    if (changed) this.#changed();
  }

  async pump() {
    if (this.#running) return;
    this.#running = true;
    try {
      for (;;) {
        const entry = this.entries.find((one) => one.state === "new");
        if (!entry) return;
        await this.#deliver(entry);
      }
    } finally {
      this.#running = false;
    }
  }

  async #deliver(entry) {
    entry.state = "sending";
    for (;;) {
      entry.attempt += 1;
      this.#changed();
      try {
        this.#accepted(entry, await this.#post(entry));
        return;
      } catch (error) {
        if (!error.transient || entry.attempt >= ATTEMPTS) {
          this.#failed(entry, error);
          return;
        }
        await sleep(Math.max(backoff(entry.attempt), error.retryAfter ?? 0));
      }
    }
  }

  #post(entry) {
    const { deliveryId, text, admission } = entry;
    if (!this.sessionId) return this.api.start(text, deliveryId);
    // Kept with the entry: a repeat must be the same request, whatever happened in between.
    entry.token ??= this.storage.token(this.sessionId);
    return this.api.followUp(this.sessionId, entry.token, text, deliveryId, admission);
  }

  #accepted(entry, answer) {
    Object.assign(entry, { state: "accepted", admitted: answer.admitted, error: null });
    delete entry.token;
    if (!this.sessionId) {
      const old = this.#key;
      this.sessionId = answer.sessionId;
      this.storage.write(old, null);
      this.storage.keepTitle(answer.sessionId, entry.text.slice(0, 80));
      this.storage.keepToken(answer.sessionId, answer.continuationToken ?? null);
      this.#changed();
      this.onSession(answer.sessionId);
      return;
    }
    if (answer.continuationToken) this.storage.keepToken(this.sessionId, answer.continuationToken);
    this.#changed();
  }

  #failed(entry, error) {
    Object.assign(entry, { state: "failed", error: { code: error.code, message: error.message } });
    delete entry.token;
    this.#changed();
    this.onRefused(error);
  }

  #changed() {
    // What is both answered and in the log need not survive a reload, except for the text of what
    // was cleared, which no event holds.
    const done = (entry) => entry.settled && entry.state === "accepted" && !entry.cleared;
    const open = this.entries.filter((entry) => !done(entry));
    this.storage.write(this.#key, open.length ? open : null);
    this.onChange();
  }
}
