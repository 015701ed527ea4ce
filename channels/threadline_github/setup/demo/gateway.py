"""Stands before the local GitHub server, and adds what that lacks from a real repository.

These are git over HTTP, the diff and the files of a pull request, a head that follows its branch,
lines of review comments, that an issue is a pull request, and the list of an App's deliveries. All
else passes as it is: so do webhooks, with the server's own signature, unless something had to be
added.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from threadline_github.inbound.webhook import is_signed
from threadline_github.setup.demo.fetch import answer, password
from threadline_github.setup.demo.hooks import Hooks
from threadline_github.setup.demo.positions import by_line, by_position, positions
from threadline_github.workspace.diff import FileDiff, parse

if TYPE_CHECKING:
    from aiohttp import ClientSession, web

    from threadline_github.setup.demo.origin import Origin

__all__ = ["Gateway", "entry"]

_BODY = 64 * 1024 * 1024
_REPO = "/repos/{owner}/{repo}"
_HOP = {"connection", "content-encoding", "content-length", "host", "keep-alive"}
_HOP |= {"accept-encoding", "transfer-encoding", "upgrade"}
_ISSUE = (
    *("author_association", "body", "closed_at", "comments", "created_at", "draft", "html_url"),
    *("id", "labels", "number", "state", "title", "updated_at", "user"),
)
_DIFF = ("application/vnd.github.diff", "application/vnd.github.v3.diff")


class Gateway:
    """An HTTP server on 127.0.0.1 before another; ``upstream`` is that one's address.

    ``secret`` signs webhooks; ``reader`` is a token that may read all.
    """

    def __init__(self, origin: Origin, *, secret: str, reader: str, port: int = 0) -> None:
        self.upstream = ""
        self.hooks = Hooks(secret)
        self._origin = origin
        self._secret = secret
        self._reader = reader
        self._port = port
        self._tokens: set[str] = set()
        self._runner: web.AppRunner | None = None
        self._http: ClientSession | None = None

    @property
    def url(self) -> str:
        """Where it is; known once it has started."""
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen."""
        import aiohttp
        from aiohttp import web

        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        application = web.Application(client_max_size=_BODY)
        pull = _REPO + "/pulls/{number:\\d+}"
        application.add_routes(
            [
                web.get("/{owner}/{repo}.git/info/refs", self._git),
                web.post("/{owner}/{repo}.git/git-upload-pack", self._git),
                web.post("/app/installations/{id}/access_tokens", self._grant),
                web.get("/app/hook/{what:config|deliveries}", self._hook),
                web.get("/app/hook/{what:deliveries}/{number:\\d+}", self._hook),
                web.get(_REPO + "/pulls", self._pulls),
                web.get(pull, self._pull),
                web.get(pull + "/files", self._files),
                web.get(pull + "/comments", self._comments),
                web.get(pull + "/reviews/{review:\\d+}/comments", self._comments),
                web.post(pull + "/reviews", self._review),
                web.post(pull + "/comments/{comment:\\d+}/replies", self._reply),
                web.get(_REPO + "/compare/{base}...{head}", self._compare),
                web.get(_REPO + "/check-runs/{check:\\d+}/annotations", self._annotations),
                web.get(_REPO + "/issues/{number:\\d+}", self._issue_of),
                web.post("/_hook", self._webhook),
                web.route("*", "/{path:.*}", self._pass),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._http is not None:
            await self._http.close()

    async def send(self, event: str, payload: Mapping[str, Any]) -> int:
        """Send a webhook of our own; returns the answer's status, 0 for none."""
        assert self._http is not None
        guid = str(uuid.uuid4())
        return await self.hooks.send(self._http, event, guid, json.dumps(payload).encode())

    # What passes

    async def _ask(
        self, request: web.Request, body: bytes | None = None, *, path: str | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Ask the server what was asked here, or the same with another body or path."""
        assert self._http is not None
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
        async with self._http.request(
            request.method,
            f"{self.upstream}{path or request.raw_path}",
            data=await request.read() if body is None else body,
            headers=headers,
            allow_redirects=False,
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP}
            return answer.status, kept, await answer.read()

    async def _pass(self, request: web.Request) -> web.Response:
        from aiohttp import web

        status, headers, body = await self._ask(request)
        return web.Response(status=status, headers=headers, body=body)

    async def _grant(self, request: web.Request) -> web.Response:
        """Pass an installation's token on, and know it again when git brings it."""
        from aiohttp import web

        status, headers, body = await self._ask(request)
        if status == HTTPStatus.CREATED:
            self._tokens.add(json.loads(body)["token"])
        return web.Response(status=status, headers=headers, body=body)

    # The App's webhook

    async def _hook(self, request: web.Request) -> web.Response:
        """Say where the App's webhooks go, and what was sent there, to whoever is the App."""
        from aiohttp import web

        status, headers, body = await self._ask(request, path="/app")
        if status != HTTPStatus.OK:
            return web.Response(status=status, headers=headers, body=body)
        what, number = request.match_info["what"], request.match_info.get("number")
        if what == "config":
            hook = {"content_type": "json", "insecure_ssl": "0", "secret": "********"}
            return web.json_response(hook | {"url": self.hooks.target})
        if number is None:
            return web.json_response([one.listed() for one in self.hooks.newest()])
        found = self.hooks.delivery(int(number))
        if found is None:
            return web.json_response({"message": "Not Found"}, status=HTTPStatus.NOT_FOUND)
        return web.json_response(found.whole())

    # Pull requests

    async def _pulls(self, request: web.Request) -> web.Response:
        from aiohttp import web

        status, headers, body = await self._ask(request)
        if status == HTTPStatus.OK:
            body = json.dumps([await self._at_head(pull) for pull in json.loads(body)]).encode()
        return web.Response(status=status, headers=headers, body=body)

    async def _pull(self, request: web.Request) -> web.Response:
        from aiohttp import web

        status, headers, body = await self._ask(request)
        if status != HTTPStatus.OK:
            return web.Response(status=status, headers=headers, body=body)
        pull = await self._at_head(json.loads(body))
        diff = await self._diff(pull)
        if _wants_diff(request):
            return web.Response(text=diff, content_type=_DIFF[0])
        files = parse(diff)
        pull["changed_files"] = len(files)
        pull["additions"] = sum(file.added for file in files)
        pull["deletions"] = sum(file.removed for file in files)
        return web.json_response(pull, headers=_rates(headers))

    async def _files(self, request: web.Request) -> web.Response:
        from aiohttp import web

        status, headers, body = await self._ask(request)
        if status != HTTPStatus.OK:
            return web.Response(status=status, headers=headers, body=body)
        pull = await self._pull_of(request)
        if request.query.get("page", "1") != "1":
            return web.json_response([])
        return web.json_response([entry(file) for file in parse(await self._diff(pull))])

    async def _issue_of(self, request: web.Request) -> web.Response:
        """Return an issue; the server knows none that is a pull request."""
        from aiohttp import web

        status, headers, body = await self._ask(request)
        if status != HTTPStatus.NOT_FOUND:
            return web.Response(status=status, headers=headers, body=body)
        pull = await self._pull_of(request)
        shown = {key: pull.get(key) for key in _ISSUE}
        return web.json_response(shown | {"pull_request": {"url": pull["url"]}})

    async def _review(self, request: web.Request) -> web.Response:
        """Pass a review on with positions in place of lines, where its lines are in the diff."""
        from aiohttp import web

        review = await request.json()
        if review.get("comments"):
            pull = await self._pull_of(request)
            diff = await self._diff(pull, review.get("commit_id"))
            comments = by_position(review["comments"], positions(diff))
            if comments is None:
                errors = ["Line could not be resolved"]
                refused = {"message": "Unprocessable Entity", "errors": errors}
                return web.json_response(refused, status=HTTPStatus.UNPROCESSABLE_ENTITY)
            review["comments"] = comments
        status, headers, body = await self._ask(request, json.dumps(review).encode())
        return web.Response(status=status, headers=headers, body=body)

    async def _reply(self, request: web.Request) -> web.Response:
        """Answer a comment on a line, for which the server has another address."""
        from aiohttp import web

        match = request.match_info
        body = await request.json()
        reply = {"body": body.get("body"), "in_reply_to_id": int(match["comment"])}
        path = f"/repos/{match['owner']}/{match['repo']}/pulls/{match['number']}/comments"
        status, headers, said = await self._ask(request, json.dumps(reply).encode(), path=path)
        return web.Response(status=status, headers=headers, body=said)

    async def _compare(self, request: web.Request) -> web.Response:
        from aiohttp import web

        status, headers, body = await self._ask(request)
        if status != HTTPStatus.OK or not _wants_diff(request):
            return web.Response(status=status, headers=headers, body=body)
        diff = await self._origin.diff(request.match_info["base"], request.match_info["head"])
        return web.Response(text=diff, content_type=_DIFF[0])

    async def _annotations(self, request: web.Request) -> web.Response:
        """Return a check's annotations as the list that they are at GitHub."""
        from aiohttp import web

        status, headers, body = await self._ask(request)
        if status != HTTPStatus.OK:
            return web.Response(status=status, headers=headers, body=body)
        return web.json_response(json.loads(body)["check_annotations"], headers=_rates(headers))

    async def _comments(self, request: web.Request) -> web.Response:
        from aiohttp import web

        status, headers, body = await self._ask(request)
        if status != HTTPStatus.OK:
            return web.Response(status=status, headers=headers, body=body)
        pull = await self._pull_of(request)
        shown = []
        for comment in json.loads(body):
            known = positions(await self._diff(pull, comment.get("commit_id")))
            shown.append(by_line(comment, known))
        return web.json_response(shown, headers=_rates(headers))

    async def _pull_of(self, request: web.Request) -> dict[str, Any]:
        """Return the pull request that a path is about; raises HTTPNotFound."""
        from aiohttp import web

        match = request.match_info
        found = await self._read(f"/repos/{match['owner']}/{match['repo']}/pulls/{match['number']}")
        if found is None:
            raise web.HTTPNotFound(text='{"message": "Not Found"}', content_type="application/json")
        return await self._at_head(found)

    async def _read(self, path: str) -> Any:
        """Return what the server knows of itself; None when it refuses."""
        assert self._http is not None
        headers = {"Authorization": f"token {self._reader}"}
        async with self._http.get(f"{self.upstream}{path}", headers=headers) as answer:
            return await answer.json() if answer.status == HTTPStatus.OK else None

    async def _at_head(self, pull: dict[str, Any]) -> dict[str, Any]:
        """Return a pull request whose head is its branch's."""
        head = await self._origin.head(str(pull["head"]["ref"]))
        if head is None or head == pull["head"]["sha"]:
            return pull
        return {**pull, "head": {**pull["head"], "sha": head}}

    async def _diff(self, pull: Mapping[str, Any], head: str | None = None) -> str:
        return await self._origin.diff(str(pull["base"]["ref"]), head or str(pull["head"]["sha"]))

    # Webhooks

    async def _webhook(self, request: web.Request) -> web.Response:
        """Pass the server's webhook on to the agent."""
        from aiohttp import web

        body = await request.read()
        signature = request.headers.get("X-Hub-Signature-256", "")
        if not is_signed(self._secret, body, signature):
            return web.Response(status=HTTPStatus.UNAUTHORIZED)
        event = request.headers["X-GitHub-Event"]
        whole = await self._completed(json.loads(body))
        guid = request.headers["X-GitHub-Delivery"]
        if self.hooks.knows(guid):
            # The server's id is the millisecond, which two events may share.
            guid = str(uuid.uuid4())
        if whole is not None:
            body, signature = json.dumps(whole).encode(), ""
        assert self._http is not None
        status = await self.hooks.send(self._http, event, guid, body, signature)
        return web.Response(status=status or HTTPStatus.BAD_GATEWAY)

    async def _completed(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Return a payload with what it lacks; None when it lacks nothing."""
        issue, pull = payload.get("issue"), payload.get("pull_request")
        if isinstance(issue, dict) and "pull_request" not in issue:
            name = payload["repository"]["full_name"]
            found = await self._read(f"/repos/{name}/pulls/{issue['number']}")
            if found is None:
                return None
            return {**payload, "issue": {**issue, "pull_request": {"url": found["url"]}}}
        if isinstance(pull, dict):
            now = await self._at_head(pull)
            return None if now is pull else {**payload, "pull_request": now}
        return None

    # git

    async def _git(self, request: web.Request) -> web.Response:
        """Serve a fetch, to somebody with an installation's token."""
        from aiohttp import web

        if password(request.headers.get("Authorization", "")) not in self._tokens:
            return web.Response(
                status=HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": 'Basic realm="GitHub"'}
            )
        if request.query.get("service", "git-upload-pack") != "git-upload-pack":
            return web.Response(status=HTTPStatus.FORBIDDEN)
        match = request.match_info
        name = f"{match['owner']}/{match['repo']}"
        for pull in await self._read(f"/repos/{name}/pulls?state=all&per_page=100") or []:
            head = (await self._at_head(pull))["head"]["sha"]
            await self._origin.point(f"refs/pull/{pull['number']}/head", head)
        return await answer(self._origin.bare, request)


def entry(file: FileDiff) -> dict[str, Any]:
    """Return a file as GitHub lists it."""
    _, _, patch = file.text.partition("\n@@")
    status = "modified"
    if file.before == "/dev/null":
        status = "added"
    elif not file.right and file.left:
        status = "removed"
    elif file.before != file.path:
        status = "renamed"
    return {
        "filename": file.path,
        "status": status,
        "additions": file.added,
        "deletions": file.removed,
        "changes": file.added + file.removed,
        "patch": f"@@{patch}" if patch else "",
        **({"previous_filename": file.before} if status == "renamed" else {}),
    }


def _wants_diff(request: web.Request) -> bool:
    return any(media in request.headers.get("Accept", "") for media in _DIFF)


def _rates(headers: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in headers.items() if k.lower().startswith(("x-ratelimit", "link"))}
