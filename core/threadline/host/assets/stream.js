// Following a session's log: NDJSON over fetch, resumed at the last index plus one.

import { backoff, sleep } from "./dom.js";

const NEWLINE = 0x0a;
const SILENCE_MS = 50_000; // the host sends a blank line every 15 s

/**
 * Cuts bytes into lines at `\n` and nowhere else.
 *
 * A line counts once its newline has arrived, so what an ended stream leaves behind is discarded.
 */
export class LineSplitter {
  #rest = [];

  /** Take a chunk; return the complete, non-blank lines in it. */
  push(chunk) {
    const end = chunk.lastIndexOf(NEWLINE);
    if (end < 0) {
      this.#rest.push(chunk);
      return [];
    }
    const parts = [...this.#rest, chunk.subarray(0, end)];
    this.#rest = end + 1 < chunk.length ? [chunk.slice(end + 1)] : [];
    const decoder = new TextDecoder();
    let text = "";
    for (const part of parts) text += decoder.decode(part, { stream: true });
    text += decoder.decode();
    return text.split("\n").filter((line) => line.trim() !== "");
  }
}

function parse(line) {
  try {
    const event = JSON.parse(line);
    return Number.isInteger(event?.index) && typeof event.type === "string" ? event : null;
  } catch {
    return null;
  }
}

/**
 * A follower that reconnects until it is closed.
 *
 * `open(startIndex, signal)` returns a Response or throws an ApiError. `onBatch(items)` gets
 * `{line, event}` with `event` null for a line that is not an event. `onState(state, detail)` tells
 * `connecting | live | waiting | paused | ended | refused`. `onReset()` comes before a replay from 0.
 */
export class EventStream {
  #last = -1;
  #attempt = 0;
  #abort = null;
  #closed = false;
  #ended = false;

  constructor({ open, onBatch, onState, onReset }) {
    this.open = open;
    this.onBatch = onBatch;
    this.onState = onState;
    this.onReset = onReset;
  }

  start() {
    if (this.#closed || this.#ended || this.#abort) return;
    this.#abort = new AbortController();
    this.#run(this.#abort.signal);
  }

  /** Let go of the connection; `start()` takes it up where it was. */
  pause() {
    if (!this.#abort || this.#ended) return;
    this.#abort.abort();
    this.#abort = null;
    this.onState("paused");
  }

  close() {
    this.#closed = true;
    this.#abort?.abort();
    this.#abort = null;
  }

  /** Reconnect now instead of after the rest of the backoff. */
  hurry() {
    if (this.#closed || this.#ended) return;
    this.#abort?.abort();
    this.#abort = null;
    this.#attempt = 0;
    this.start();
  }

  async #run(signal) {
    while (!signal.aborted) {
      this.onState("connecting", { attempt: this.#attempt });
      const error = await this.#follow(signal).then(() => null, (reason) => reason);
      if (signal.aborted) return;
      if (this.#ended) return this.#finish("ended");
      if (error?.code === "index_out_of_range") {
        this.#last = -1;
        this.onReset();
      } else if (error?.status && !error.transient && error.status < 500) {
        return this.#finish("refused", error);
      }
      this.#attempt += 1;
      const wait = Math.max(backoff(this.#attempt), error?.retryAfter ?? 0);
      this.onState("waiting", { ms: wait, attempt: this.#attempt });
      await sleep(wait, signal);
    }
  }

  #finish(state, detail) {
    this.#abort = null;
    this.onState(state, detail);
  }

  async #follow(signal) {
    // One connection has its own signal, so that silence ends it without ending the follower.
    const connection = new AbortController();
    const end = () => connection.abort();
    signal.addEventListener("abort", end, { once: true });
    let watchdog = setTimeout(end, SILENCE_MS);
    try {
      const response = await this.open(this.#last + 1, connection.signal);
      this.onState("live");
      const reader = response.body.getReader();
      const lines = new LineSplitter();
      for (;;) {
        const { done, value } = await reader.read();
        if (done || signal.aborted) return;
        clearTimeout(watchdog);
        watchdog = setTimeout(end, SILENCE_MS);
        this.#attempt = 0;
        this.#deliver(lines.push(value));
      }
    } finally {
      clearTimeout(watchdog);
      signal.removeEventListener("abort", end);
      connection.abort();
    }
  }

  #deliver(lines) {
    const items = [];
    for (const line of lines) {
      const event = parse(line);
      if (event) {
        if (event.index <= this.#last) continue;
        const missing = event.type !== "log.recovered" && this.#last >= 0 ? event.index - this.#last - 1 : 0;
        this.#last = event.index;
        if (event.type === "session.completed" || event.type === "session.failed") this.#ended = true;
        items.push({ line, event, missing });
      } else {
        items.push({ line, event: null, missing: 0 });
      }
    }
    if (items.length) this.onBatch(items);
  }
}
