// The page of a FakeSlack. All that is shown comes from /view; lists are drawn anew when it changed.

const EVERY = 500;
const at = { user: "", channel: "", thread: "" };
const drawn = {};
const find = (id) => document.getElementById(id);

function make(tag, options = {}, ...children) {
  const { data = {}, ...rest } = options;
  const made = Object.assign(document.createElement(tag), rest);
  Object.assign(made.dataset, data);
  made.append(...children);
  return made;
}

// Draws a part of the page when what it shows is not what is there already.
function draw(name, value, how) {
  const text = JSON.stringify(value);
  if (drawn[name] === text) return;
  drawn[name] = text;
  how(value);
}

function complain(text) {
  find("problem").hidden = !text;
  find("problem").textContent = text;
}

async function act(what, body) {
  try {
    const answer = await fetch(what, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ user: at.user, channel: at.channel, ...body }),
    });
    const said = await answer.json();
    complain(said.error ?? "");
    await look();
    return answer.ok;
  } catch {
    complain("The page's server does not answer.");
    return false;
  }
}

// What is shown

function time(ts) {
  return new Date(Number(ts) * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

function part(message, { html, buttons }) {
  if (html !== undefined) return make("div", { className: "body", innerHTML: html });
  return make(
    "div",
    { className: "buttons" },
    ...buttons.map(({ action, value, label, style }) =>
      make("button", {
        type: "button",
        className: style,
        textContent: label,
        onclick: () => act("click", { ts: message.ts, action, value }),
      }),
    ),
  );
}

function message(one, inThread) {
  const who = make("div", { className: "who" }, one.author);
  if (one.bot) who.append(make("span", { className: "badge", textContent: "APP" }));
  who.append(make("small", { textContent: time(one.ts) + (one.edited ? " (edited)" : "") }));
  if (one.whisper) who.append(make("span", { className: "note", textContent: "Only visible to you" }));
  const shown = make(
    "li",
    { className: `message${one.whisper ? " whisper" : ""}`, data: { ts: one.ts } },
    who,
    ...one.parts.map((each) => part(one, each)),
    ...one.files.map((name) => make("div", { className: "file", textContent: `📎 ${name}` })),
  );
  if (one.reactions.length) shown.append(make("div", { className: "note", textContent: one.reactions.join(" ") }));
  if (!inThread && !one.whisper) {
    const label = one.replies ? `${one.replies} ${one.replies === 1 ? "reply" : "replies"}` : "Reply in thread";
    shown.append(make("button", { type: "button", className: "open", textContent: label, onclick: () => open(one.ts) }));
  }
  return shown;
}

function list(id, messages, inThread) {
  draw(id, messages, () => {
    const where = find(id);
    const below = where.scrollHeight - where.scrollTop - where.clientHeight;
    where.replaceChildren(...messages.map((one) => message(one, inThread)));
    if (below < 80) where.scrollTop = where.scrollHeight;
  });
}

function show(view) {
  at.user = view.me;
  at.channel = view.channel;
  draw("people", [view.people, view.me], () => {
    find("me").replaceChildren(
      ...view.people.map(({ id, name }) => make("option", { value: id, textContent: name, selected: id === view.me })),
    );
  });
  draw("channels", [view.channels, view.channel], () => {
    find("channels").replaceChildren(
      ...view.channels.map(({ id, name }) => {
        const button = make("button", { type: "button", textContent: name, onclick: () => go(id) });
        if (id === view.channel) button.setAttribute("aria-current", "true");
        return make("li", {}, button);
      }),
    );
    const here = view.channels.find(({ id }) => id === view.channel);
    find("title").textContent = here.name;
    find("composer").text.placeholder = here.name.startsWith("#")
      ? `Write to ${here.name}; @${view.agent} asks the agent`
      : `Write to ${here.name}`;
  });
  list("messages", view.messages, false);
  list("replies", view.thread, true);
  const status = view.status ? `${view.agent} ${view.status}` : view.working ? `${view.agent} is working` : "";
  find("status").hidden = !status;
  find("status").firstElementChild.textContent = status;
  find("stop").hidden = !view.working;
}

let asked = 0;

async function look() {
  const number = ++asked;
  try {
    const answer = await fetch(`view?${new URLSearchParams(at)}`);
    const view = await answer.json();
    // An answer that a newer question has overtaken shows what is no longer asked for.
    if (number === asked && answer.ok) show(view);
    if (find("problem").textContent.startsWith("The page's server")) complain("");
  } catch {
    complain("The page's server does not answer.");
  }
}

// What a person does

function open(ts) {
  at.thread = ts;
  find("thread").hidden = !ts;
  document.body.classList.toggle("with-thread", Boolean(ts));
  if (ts) find("reply").text.focus();
  look();
}

function go(channel) {
  at.channel = channel;
  open("");
}

function base64(buffer) {
  let text = "";
  for (const byte of new Uint8Array(buffer)) text += String.fromCharCode(byte);
  return btoa(text);
}

async function send(form, thread) {
  const { text, file } = form;
  const chosen = file.files[0];
  const body = { text: text.value, thread };
  if (chosen) body.file = { name: chosen.name, content: base64(await chosen.arrayBuffer()) };
  if (!chosen && !text.value.trim()) return;
  if (await act("post", body)) form.reset();
}

for (const [id, thread] of [["composer", () => ""], ["reply", () => at.thread]]) {
  const form = find(id);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form, thread());
  });
  form.text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
}
find("me").addEventListener("change", (event) => {
  Object.assign(at, { user: event.target.value, channel: "" });
  open("");
});
find("close").addEventListener("click", () => open(""));
find("stop").addEventListener("click", () => act("stop", { thread: at.thread }));

look();
setInterval(look, EVERY);
