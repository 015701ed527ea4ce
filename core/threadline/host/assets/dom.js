// Small helpers: building elements, formatting, ids and the clipboard. Nothing here ever parses HTML.

/** Make an element. Attributes named `on…` are listeners; `null` and `false` are left out. */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Set text only when it changed, so that a live region does not repeat itself. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function formatDuration(ms) {
  if (!Number.isFinite(ms) || ms < 0) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

export const formatNumber = (value) => Number(value ?? 0).toLocaleString("en-US");

export function formatTime(iso) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return "";
  const sameDay = at.toDateString() === new Date().toDateString();
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return sameDay ? time : `${at.toLocaleDateString([], { month: "short", day: "numeric" })}, ${time}`;
}

/** Text as it is, everything else as indented JSON. */
export function pretty(value) {
  if (typeof value === "string") return value;
  if (value === undefined) return "";
  try {
    return JSON.stringify(value, null, 2);
  } catch {
    return String(value);
  }
}

/** A random UUID, also on plain-http origins where `crypto.randomUUID` does not exist. */
export function newId() {
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** Copy text, also on plain-http origins where `navigator.clipboard` does not exist. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "visually-hidden", "aria-hidden": "true", tabindex: "-1" });
    area.value = text;
    document.body.append(area);
    const focused = document.activeElement;
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    focused?.focus?.();
    return done;
  }
}

/** A button that copies what `read()` returns and says so for a moment. */
export function copyButton(read, label = "Copy") {
  const button = h("button", { type: "button", class: "link-button copy" }, label);
  button.addEventListener("click", async () => {
    setText(button, (await copyText(read())) ? "Copied" : "Could not copy");
    setTimeout(() => setText(button, label), 1500);
  });
  return button;
}

export const sleep = (ms, signal) =>
  new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });

/** Exponential backoff with jitter: attempt 1 waits about `base`, none waits over `ceiling`. */
export function backoff(attempt, base = 500, ceiling = 15_000) {
  const full = Math.min(ceiling, base * 2 ** Math.min(attempt - 1, 10));
  return full / 2 + (Math.random() * full) / 2;
}
