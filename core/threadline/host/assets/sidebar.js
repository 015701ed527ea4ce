// The agent, its tools, its sessions, and the token to reach them with.

import { byId, formatTime, h, setText } from "./dom.js";

const first = (...values) => values.find((value) => typeof value === "string" && value.trim() !== "");

/** The list under any of the names that a host may give it. */
function listIn(answer, name) {
  if (Array.isArray(answer)) return answer;
  return Array.isArray(answer?.[name]) ? answer[name] : [];
}

function modelName(info) {
  const model = info.model ?? info.agent?.model;
  return first(model, model?.name, model?.id, info.harness, info.harness?.name) ?? "";
}

export class Sidebar {
  /** `onOpen(sessionId)`, `onNew()` and `onBearer()` are what a click asks for. */
  constructor({ api, storage, onOpen, onNew, onBearer }) {
    Object.assign(this, { api, storage, onOpen, onBearer, current: null, agentName: null });
    byId("new-session").addEventListener("click", () => (this.drawer(false), onNew()));
    byId("refresh-sessions").addEventListener("click", () => this.loadSessions());
    byId("open-sidebar").addEventListener("click", () => this.drawer(true));
    byId("close-sidebar").addEventListener("click", () => this.drawer(false));
    byId("scrim").addEventListener("click", () => this.drawer(false));
    byId("access-form").addEventListener("submit", (submit) => {
      submit.preventDefault();
      this.storage.bearer = byId("bearer").value.trim();
      this.#drawAccess();
      this.onBearer();
    });
    byId("bearer").value = storage.bearer;
    this.#drawAccess();
  }

  get drawerOpen() {
    return document.body.classList.contains("drawer");
  }

  drawer(open) {
    if (open === this.drawerOpen) return;
    document.body.classList.toggle("drawer", open);
    byId("scrim").hidden = !open;
    byId("open-sidebar").setAttribute("aria-expanded", String(open));
    (open ? byId("close-sidebar") : byId("open-sidebar")).focus();
    if (open) this.loadSessions();
  }

  askForBearer() {
    byId("access").open = true;
    setText(byId("access-state"), "needed");
  }

  #drawAccess() {
    setText(byId("access-state"), this.storage.bearer ? "token set" : "");
  }

  load() {
    return Promise.all([this.loadInfo(), this.loadTools(), this.loadSessions()]);
  }

  async loadInfo() {
    let info = {};
    try {
      info = await this.api.get("/v1/info");
    } catch (error) {
      if (error.status === 401) this.askForBearer();
    }
    const slug = this.api.base.split("/").filter(Boolean).at(-1);
    this.agentName = first(info.name, info.agent?.name, info.agent, info.title, info.slug, slug) ?? "Agent";
    setText(byId("agent-name"), this.agentName);
    setText(byId("agent-model"), modelName(info));
    document.title = `${this.agentName} · Playground`;
    const problems = listIn(info.diagnostics, "diagnostics").length;
    byId("agent-model").title = problems ? `${problems} diagnostics, see ${this.api.base}/v1/info` : "";
  }

  async loadTools() {
    const list = byId("tools");
    try {
      const answer = await this.api.get("/v1/tools");
      const tools = listIn(answer, "tools");
      list.replaceChildren(...tools.map((tool) => this.#tool(tool)));
      for (const [name, error] of Object.entries(answer.connectionErrors ?? {})) {
        const text = error?.message ?? error?.error ?? String(error?.connection ?? error);
        list.append(h("li", { class: "bad small" }, `${error?.name ?? name}: ${text}`));
      }
      setText(byId("tools-count"), String(tools.length));
    } catch (error) {
      list.replaceChildren(h("li", { class: "muted small" }, error.message));
      setText(byId("tools-count"), "");
    }
  }

  #tool(tool) {
    const name = typeof tool === "string" ? tool : first(tool.name, tool.toolName) ?? "tool";
    const about = first(tool.title, tool.description);
    const write = tool.effect === "write" ? h("span", { class: "badge" }, "write") : null;
    return h("li", {}, h("span", { class: "mono" }, name), write, about ? h("p", { class: "muted small" }, about) : null);
  }

  async loadSessions() {
    const note = byId("sessions-note");
    try {
      const sessions = listIn(await this.api.get("/v1/sessions"), "sessions");
      this.sessions = sessions
        .map((one) => ({ ...one, id: one.sessionId ?? one.id }))
        .filter((one) => one.id)
        .sort((a, b) => String(b.createdAt ?? "").localeCompare(String(a.createdAt ?? "")));
      setText(note, this.sessions.length ? "" : "None yet.");
    } catch (error) {
      if (error.status === 401) this.askForBearer();
      this.sessions = [];
      setText(note, error.message);
    }
    this.#drawSessions();
  }

  select(sessionId) {
    this.current = sessionId;
    this.#drawSessions();
  }

  titleOf(sessionId) {
    const known = this.sessions?.find((one) => one.id === sessionId);
    return first(known?.title, this.storage.title(sessionId), known?.preview, known?.firstMessage);
  }

  #drawSessions() {
    byId("sessions").replaceChildren(...(this.sessions ?? []).map((one) => this.#session(one)));
  }

  #session({ id, createdAt, status, state, channel, mode }) {
    const phase = first(status, state, status?.phase) ?? "";
    const facts = [formatTime(createdAt), channel, mode === "task" ? "task" : null].filter(Boolean).join(" · ");
    const open = () => (this.drawer(false), this.onOpen(id));
    const button = h(
      "button",
      { type: "button", class: "session", "aria-current": id === this.current ? "true" : null, "data-session-id": id, onclick: open },
      h("span", { class: "session-title" }, this.titleOf(id) ?? id),
      h("span", { class: "session-facts muted small" }, facts, phase ? h("span", { class: "badge", "data-phase": phase }, phase) : null),
    );
    return h("li", {}, button);
  }
}
