"""What a browser opens: the index, the playground, the documentation."""

from __future__ import annotations

import html
import re
from pathlib import Path

from aiohttp import web

from threadline.errors import NotFound

__all__ = ["Docs", "asset", "index", "playground"]

ASSETS = Path(__file__).parent / "assets"
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_LINK = re.compile(r'href="([\w/-]+)\.md(#[^"]*)?"')
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'; img-src 'self' blob:"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def playground() -> web.Response:
    """Return the playground's page."""
    return asset("playground.html")


def asset(name: str) -> web.Response:
    """Return one of the playground's files.

    Raises NotFound.
    """
    path = next((path for path in ASSETS.iterdir() if path.name == name), None)
    kind = _TYPES.get(path.suffix) if path is not None else None
    if path is None or kind is None or not path.is_file():
        raise NotFound("There is no such file.")
    return web.Response(body=path.read_bytes(), content_type=kind, charset="utf-8", headers=HEADERS)


def page(title: str, body: str) -> web.Response:
    """Return a plain page."""
    text = (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><body>{body}</body></html>"
    )
    return web.Response(text=text, content_type="text/html", headers=HEADERS)


def index(agents: list[tuple[str, str, str]], *, docs: bool) -> web.Response:
    """Return the list of mounted agents; ``(name, prefix, description)`` each."""
    items = "".join(
        f"<li><a href='{html.escape(prefix)}/playground'>{html.escape(name)}</a> "
        f"{html.escape(description)}</li>"
        for name, prefix, description in agents
    )
    more = "<p><a href='/docs'>Documentation</a></p>" if docs else ""
    return page("threadline", f"<h1>Agents</h1><ul>{items}</ul>{more}")


class Docs:
    """The documentation's Markdown pages, rendered when they are asked for."""

    def __init__(self) -> None:
        packaged = Path(__file__).parent.parent / "_docs"
        source = Path(__file__).parents[3] / "docs"
        self.folder = packaged if packaged.is_dir() else source

    def page(self, name: str) -> web.Response:
        """Return one page, or the index for an empty name.

        Raises NotFound.
        """
        name = name.strip("/").removesuffix(".md") or "index"
        found = (path for path in self.folder.rglob("*.md") if self._name(path) == name)
        path = next(found, None)
        if path is None:
            raise NotFound("There is no such page.")
        text = path.read_text("utf-8")
        title = text.partition("\n")[0].lstrip("# ").strip()
        return page(title, _LINK.sub(r'href="/docs/\1\2"', _render(text)))

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).with_suffix("").as_posix()


def _render(text: str) -> str:
    try:
        from markdown_it import MarkdownIt
    except ModuleNotFoundError:
        return f"<pre>{html.escape(text)}</pre>"
    rendered: str = MarkdownIt("commonmark").enable("table").render(text)
    return rendered
