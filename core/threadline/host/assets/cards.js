// Tool calls and delegated work as cards.

import { copyButton, formatDuration, formatNumber, h, pretty, setText } from "./dom.js";

const LABELS = {
  running: "Running",
  done: "Done",
  error: "Failed",
  waiting: "Needs approval",
  closed: "No result",
};
const INTERRUPTIONS = /interrupt|cancel|stopped|preempt|superseded|restart|shutdown/;
const SHOWN_CHARACTERS = 20_000;
const IMAGES = new Set(["image/gif", "image/jpeg", "image/png", "image/webp"]);

/** One line that says what a call is about. */
function brief(input) {
  if (input === null || input === undefined) return "";
  if (typeof input !== "object") return String(input).slice(0, 120);
  const values = Object.entries(input).map(([key, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return `${key}: ${text}`;
  });
  return values.join(", ").slice(0, 120);
}

function block(title, text, kind = "") {
  const shown = text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}\n…` : text;
  const head = h("div", { class: "code-head" }, h("span", {}, title), copyButton(() => text));
  return h("div", { class: `code-block ${kind}` }, head, h("pre", { tabindex: "0" }, h("code", {}, shown)));
}

export class ToolCard {
  constructor({ callId, toolName, input, effect, kind = "tool", startedAt }) {
    this.callId = callId;
    this.retries = 0;
    this.status = h("span", { class: "card-status" });
    this.time = h("span", { class: "card-time muted", "aria-hidden": "true", "data-since": startedAt });
    this.body = h("div", { class: "card-body" });
    const name = h("span", { class: "card-name mono" }, toolName || "tool");
    const badge = effect === "write" ? h("span", { class: "badge" }, "write") : null;
    const kindBadge = kind === "subagent" ? h("span", { class: "badge" }, "subagent") : null;
    const about = h("span", { class: "card-brief muted" }, brief(input));
    const mark = h("span", { class: "card-mark", "aria-hidden": "true" });
    const summary = h("summary", {}, mark, name, badge, kindBadge, about, this.status, this.time);
    this.node = h("details", { class: "tool-card", "data-call-id": callId, "data-tool": toolName }, summary, this.body);
    if (input !== undefined) this.body.append(block(kind === "subagent" ? "Prompt" : "Input", pretty(input)));
    this.set("running");
  }

  get open() {
    return this.state === "running" || this.state === "waiting";
  }

  set(state, label = LABELS[state]) {
    this.state = state;
    this.node.dataset.state = state;
    setText(this.status, label);
  }

  retry({ attempt, delayMs, error }) {
    this.retries = Math.max(this.retries + 1, (attempt ?? 1) - 1);
    this.set("running", `Retrying, attempt ${attempt ?? this.retries + 1}`);
    const why = error?.message || error?.code || "a transient failure";
    this.body.append(h("p", { class: "small muted" }, `Tried again after ${formatDuration(delayMs ?? 0)}: ${why}`));
  }

  finish({ isError, output, error, durationMs, truncated, attachments, dryRun }, loadBlob) {
    this.approval?.remove();
    const retried = this.retries ? `, ${this.retries} ${this.retries === 1 ? "retry" : "retries"}` : "";
    const cutShort = isError && INTERRUPTIONS.test(error?.code ?? "");
    const state = cutShort ? "closed" : isError ? "error" : "done";
    this.set(state, (cutShort ? "Interrupted" : LABELS[state]) + retried);
    delete this.time.dataset.since;
    this.time.removeAttribute("aria-hidden");
    setText(this.time, formatDuration(durationMs ?? Number.NaN));
    if (isError) {
      const text = error?.message || pretty(output) || "The call failed.";
      const code = error?.code ? ` (${error.code})` : "";
      this.body.append(block(`Error${code}`, text, "bad"));
      this.node.open = !cutShort;
    } else {
      this.body.append(block(dryRun ? "Output of the dry run" : "Output", pretty(output ?? null)));
    }
    for (const attachment of attachments ?? []) this.body.append(this.#attachment(attachment, loadBlob));
    if (truncated?.blobId) this.body.append(this.#whole(truncated, loadBlob));
  }

  /** The turn ended without this call's result. */
  close() {
    if (!this.open) return;
    this.approval?.remove();
    delete this.time.dataset.since;
    setText(this.time, "");
    this.set("closed");
  }

  /** Ask for a decision; `decide(callId, "approved" | "denied")` reports back by the event that follows. */
  askApproval({ approvers, expiresAt }, decide) {
    this.set("waiting");
    const note = h("p", { class: "small muted" });
    const reason = h("input", { type: "text", placeholder: "Reason (optional)", maxlength: "2000", "aria-label": "Reason" });
    const buttons = ["approved", "denied"].map((decision) => {
      const yes = decision === "approved";
      const style = yes ? "button primary" : "button danger";
      const label = yes ? "Approve" : "Deny";
      return h("button", { type: "button", class: style, onclick: () => choose(decision) }, label);
    });
    const choose = async (decision) => {
      for (const button of buttons) button.disabled = true;
      try {
        await decide(this.callId, decision, reason.value.trim());
        setText(note, "Decision sent.");
      } catch (error) {
        setText(note, error.message);
        for (const button of buttons) button.disabled = false;
      }
    };
    const who = approvers?.length ? `May be decided by ${approvers.map((one) => one?.name ?? one?.id ?? pretty(one)).join(", ")}. ` : "";
    const until = expiresAt ? `Expires ${new Date(expiresAt).toLocaleString()}.` : "";
    setText(note, who + until);
    this.approval = h("div", { class: "approval" }, h("div", { class: "row start" }, ...buttons, reason), note);
    this.body.append(this.approval);
    this.node.open = true;
  }

  resolveApproval({ decision, by, reason }) {
    this.approval?.remove();
    const who = by?.name || by?.id;
    const text = `Approval: ${decision}${who ? ` by ${who}` : ""}${reason ? ` (${reason})` : ""}`;
    this.body.append(h("p", { class: "small" }, text));
    if (decision === "approved") this.set("running");
    else this.set("error", decision === "denied" ? "Denied" : `Approval ${decision}`);
  }

  /** An image is shown, any other file offered: what a tool gave is data, never a page. */
  #attachment({ blobId, mediaType, size, name }, loadBlob) {
    const label = `${name || mediaType} (${formatNumber(size)} bytes)`;
    const button = h("button", { type: "button", class: "button" }, `Load ${label}`);
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        const bytes = await (await loadBlob(blobId)).arrayBuffer();
        const shown = IMAGES.has(mediaType);
        const url = URL.createObjectURL(new Blob([bytes], { type: shown ? mediaType : "application/octet-stream" }));
        const made = shown
          ? h("img", { src: url, alt: label, class: "attachment" })
          : h("a", { href: url, download: name || "file" }, `Save ${label}`);
        button.replaceWith(made);
      } catch (error) {
        button.disabled = false;
        button.after(h("p", { class: "small bad" }, error.message));
      }
    });
    return button;
  }

  #whole({ size, blobId }, loadBlob) {
    const label = size ? `Load the whole output (${formatNumber(size)} bytes)` : "Load the whole output";
    const button = h("button", { type: "button", class: "button" }, label);
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        button.replaceWith(block("Whole output", await (await loadBlob(blobId)).text()));
      } catch (error) {
        setText(button, error.message);
      }
    });
    return button;
  }
}
