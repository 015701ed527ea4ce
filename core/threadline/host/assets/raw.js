// The raw events: the last couple of thousand lines. Rows leave out the ids; a copy is verbatim.

import { byId, copyText, formatNumber, h, setText } from "./dom.js";

const KEPT_LINES = 2000;
const KEPT_CHARACTERS = 8_000_000;
const SHOWN_CHARACTERS = 1500;

/** The time of day of an ISO timestamp, to the millisecond, as it stands in the log. */
const clock = (at) => /T([\d:]+(?:\.\d{1,3})?)/.exec(at ?? "")?.[1] ?? "";

export class RawPanel {
  #lines = []; // {line, index, type, at, text}
  #characters = 0;
  #total = 0;
  #fresh = []; // kept, but not yet drawn
  #frame = 0;

  constructor({ onToggle }) {
    this.panel = byId("raw");
    this.list = byId("raw-lines");
    this.filter = byId("raw-filter");
    this.toggle = byId("toggle-raw");
    this.onToggle = onToggle;
    this.toggle.addEventListener("click", () => this.show(this.panel.hidden));
    byId("raw-close").addEventListener("click", () => (this.show(false), this.toggle.focus()));
    this.filter.addEventListener("input", () => this.#redraw());
    byId("raw-copy").addEventListener("click", (click) => this.#copy(click.currentTarget));
  }

  get open() {
    return !this.panel.hidden;
  }

  show(open) {
    this.panel.hidden = !open;
    this.toggle.setAttribute("aria-expanded", String(open));
    if (open) this.#redraw();
    this.onToggle(open);
  }

  reset() {
    this.#lines = [];
    this.#characters = this.#total = 0;
    this.#redraw();
  }

  add(items) {
    for (const { line, event } of items) {
      const kept = event
        ? { line, index: event.index, type: event.type, at: clock(event.at), text: JSON.stringify(event.data ?? {}) }
        : { line, index: "?", type: "unreadable line", at: "", text: line };
      if (kept.text.length > SHOWN_CHARACTERS) kept.text = `${kept.text.slice(0, SHOWN_CHARACTERS)} …`;
      this.#lines.push(kept);
      this.#fresh.push(kept);
      this.#characters += line.length;
      this.#total += 1;
    }
    this.#trim();
    if (this.open && !this.#frame) this.#frame = requestAnimationFrame(() => this.#draw());
  }

  #trim() {
    let drop = Math.max(0, this.#lines.length - KEPT_LINES);
    let characters = this.#characters;
    for (let i = 0; i < drop; i += 1) characters -= this.#lines[i].line.length;
    while (characters > KEPT_CHARACTERS && drop < this.#lines.length - 1) {
      characters -= this.#lines[drop].line.length;
      drop += 1;
    }
    if (drop) this.#lines.splice(0, drop);
    this.#characters = characters;
    if (this.#fresh.length > this.#lines.length) this.#fresh = this.#fresh.slice(-this.#lines.length);
  }

  #matches(kept) {
    const wanted = this.filter.value.trim().toLowerCase();
    return !wanted || kept.line.toLowerCase().includes(wanted);
  }

  #row({ index, type, at, text }) {
    return h(
      "li",
      { "data-type": type },
      h("span", { class: "raw-index" }, String(index)),
      h("span", { class: "raw-type" }, type),
      h("span", { class: "raw-at" }, at),
      h("span", { class: "raw-text" }, text),
    );
  }

  #redraw() {
    this.#fresh = this.#lines.slice();
    this.list.replaceChildren();
    if (this.open) this.#draw();
  }

  #draw() {
    this.#frame = 0;
    const follows = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 40;
    const rows = document.createDocumentFragment();
    for (const kept of this.#fresh) if (this.#matches(kept)) rows.append(this.#row(kept));
    this.#fresh = [];
    this.list.append(rows);
    while (this.list.childElementCount > KEPT_LINES) this.list.firstElementChild.remove();
    if (follows) this.list.scrollTop = this.list.scrollHeight;
    const kept = this.#lines.length;
    const text = kept < this.#total ? `last ${formatNumber(kept)} of ${formatNumber(this.#total)}` : formatNumber(kept);
    setText(byId("raw-count"), text);
  }

  async #copy(button) {
    const text = this.#lines.filter((kept) => this.#matches(kept)).map((kept) => kept.line);
    const done = await copyText(`${text.join("\n")}\n`);
    setText(button, done ? "Copied" : "Could not copy");
    setTimeout(() => setText(button, "Copy"), 1500);
  }
}
