// A small Markdown renderer for assistant text.
//
// It builds nodes and puts all text into text nodes, so nothing in the input can become markup.
// Links are made for http and https only. Every pattern is bounded, so that time stays linear.

import { copyButton, h } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^(\s{0,12})([-*+]|\d{1,9}[.)])(\s+|$)/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const MAX_DEPTH = 6;

const INLINE = new RegExp(
  [
    "(?<tick>`{1,4})(?<code>[^`][^\\n]{0,1000}?)\\k<tick>(?!`)",
    "\\*\\*(?=\\S)(?<bold>[^\\n]{1,1000}?)(?<=\\S)\\*\\*(?!\\*)",
    "(?<!\\w)__(?=\\S)(?<bold2>[^\\n_]{1,1000})__(?!\\w)",
    "~~(?=\\S)(?<strike>[^\\n~]{1,1000})~~",
    "\\*(?=[^\\s*])(?<italic>[^\\n*]{1,1000})(?<=\\S)\\*",
    "(?<![\\w_])_(?=[^\\s_])(?<italic2>[^\\n_]{1,1000})_(?![\\w_])",
    "!?\\[(?<label>[^\\]\\n]{1,500})\\]\\((?<href>[^\\s()]{1,2000}(?:\\([^\\s()]{0,200}\\)[^\\s()]{0,500})?)(?:\\s+\"[^\"\\n]{0,200}\")?\\)",
    "(?<bare>https?://[^\\s<>\"'`*\\]]{1,2000})",
    "\\\\(?<escaped>[\\\\`*_{}\\[\\]()#+.!~|>-])",
  ].join("|"),
  "g",
);

/** Return the URL if it may become a link, else null. */
export function safeUrl(href) {
  try {
    const url = new URL(href);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

function link(href, ...children) {
  const url = safeUrl(href);
  return url ? h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, ...children) : null;
}

/** Split what a sentence puts after a bare URL from the URL. */
function trimBare(url) {
  let end = url.length;
  while (end > 0 && ".,;:!?".includes(url[end - 1])) end -= 1;
  if (url[end - 1] === ")" && !url.slice(0, end).includes("(")) end -= 1;
  return [url.slice(0, end), url.slice(end)];
}

function inlineNode({ groups }, whole, depth) {
  if (groups.code !== undefined) return [h("code", {}, groups.code.trim() || groups.code)];
  const bold = groups.bold ?? groups.bold2;
  if (bold !== undefined) return [h("strong", {}, ...inline(bold, depth + 1))];
  const italic = groups.italic ?? groups.italic2;
  if (italic !== undefined) return [h("em", {}, ...inline(italic, depth + 1))];
  if (groups.strike !== undefined) return [h("s", {}, ...inline(groups.strike, depth + 1))];
  if (groups.href !== undefined) return [link(groups.href, groups.label) ?? whole];
  if (groups.bare !== undefined) {
    const [url, after] = trimBare(groups.bare);
    return [link(url, url) ?? url, after];
  }
  return [groups.escaped];
}

function inline(text, depth = 0) {
  if (depth > MAX_DEPTH) return [text];
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > from) nodes.push(text.slice(from, match.index));
    nodes.push(...inlineNode(match, match[0], depth));
    from = match.index + match[0].length;
  }
  if (from < text.length) nodes.push(text.slice(from));
  return nodes;
}

/** A paragraph's lines, with the breaks that the writer made. */
function lines(texts) {
  return texts.flatMap((text, i) => (i ? [h("br"), ...inline(text.trim())] : inline(text.trim())));
}

function codeBlock(language, source) {
  const code = h("code", {}, source);
  const head = h("div", { class: "code-head" }, h("span", {}, language || "text"), copyButton(() => source));
  return h("div", { class: "code-block" }, head, h("pre", { tabindex: "0" }, code));
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function table(head, rows) {
  const row = (tag, line) => h("tr", {}, ...cells(line).map((cell) => h(tag, {}, ...inline(cell))));
  const body = h("tbody", {}, ...rows.map((line) => row("td", line)));
  const grid = h("table", {}, h("thead", {}, row("th", head)), body);
  return h("div", { class: "table-wrap", tabindex: "0" }, grid);
}

/** A list from `start`; deeper indented lines belong to their item. Returns [node, next line]. */
function list(source, start, depth) {
  const first = ITEM.exec(source[start]);
  const ordered = /\d/.test(first[2]);
  const node = h(ordered ? "ol" : "ul", ordered ? { start: parseInt(first[2], 10) } : {});
  let i = start;
  while (i < source.length) {
    const item = ITEM.exec(source[i]);
    if (!item || /\d/.test(item[2]) !== ordered || item[1].length > first[1].length + 1) break;
    if (item[1].length < first[1].length || RULE.test(source[i])) break;
    const inner = [source[i].slice(item[0].length)];
    i += 1;
    while (i < source.length) {
      const indent = /^\s*/.exec(source[i])[0].length;
      const blank = source[i].trim() === "";
      const lazy = !blank && indent <= item[1].length && !startsBlock(source[i]) && inner.at(-1).trim() !== "";
      const next = source[i + 1] ?? "";
      const goesOn = blank && /^\s+\S/.test(next) && /^\s*/.exec(next)[0].length > item[1].length;
      if (!(lazy || goesOn || (!blank && indent > item[1].length))) break;
      inner.push(source[i].slice(Math.min(indent, item[0].length)));
      i += 1;
    }
    node.append(h("li", {}, ...blocks(inner, depth + 1, true)));
    if (source[i]?.trim() === "" && ITEM.test(source[i + 1] ?? "")) i += 1;
  }
  return [node, i];
}

const startsBlock = (line) =>
  FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);

function blocks(source, depth = 0, tight = false) {
  const out = [];
  let i = 0;
  while (i < source.length) {
    const line = source[i];
    if (line.trim() === "") {
      i += 1;
      continue;
    }
    const fence = FENCE.exec(line);
    if (fence) {
      const body = [];
      const close = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},}\\s*$`);
      for (i += 1; i < source.length && !close.test(source[i]); i += 1) body.push(source[i]);
      out.push(codeBlock(fence[2], body.join("\n")));
      i += 1;
      continue;
    }
    const heading = HEADING.exec(line);
    if (heading) {
      // The page's own headings are h1 and h2.
      out.push(h(`h${Math.min(6, heading[1].length + 2)}`, {}, ...inline(heading[2])));
      i += 1;
    } else if (RULE.test(line)) {
      out.push(h("hr"));
      i += 1;
    } else if (QUOTE.test(line) && depth < MAX_DEPTH) {
      const body = [];
      for (; i < source.length && QUOTE.test(source[i]); i += 1) body.push(source[i].replace(QUOTE, ""));
      out.push(h("blockquote", {}, ...blocks(body, depth + 1)));
    } else if (ITEM.test(line) && depth < MAX_DEPTH) {
      const [node, next] = list(source, i, depth);
      out.push(node);
      i = next;
    } else if (line.includes("|") && TABLE_RULE.test(source[i + 1] ?? "") && source[i + 1].includes("-")) {
      const rows = [];
      const head = line;
      for (i += 2; i < source.length && source[i].includes("|"); i += 1) rows.push(source[i]);
      out.push(table(head, rows));
    } else {
      const body = [line];
      for (i += 1; i < source.length && source[i].trim() !== "" && !startsBlock(source[i]); i += 1) body.push(source[i]);
      out.push(...(tight && out.length === 0 ? lines(body) : [h("p", {}, ...lines(body))]));
    }
  }
  return out;
}

/** Render Markdown into a fragment of safe nodes. */
export function renderMarkdown(text) {
  const fragment = document.createDocumentFragment();
  fragment.append(...blocks(text.replaceAll("\r\n", "\n").split("\n")));
  return fragment;
}
