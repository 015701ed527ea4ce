"""Tokens in which letter case does not matter name one conversation, however they are spelled."""

from __future__ import annotations

import pytest

from threadline import Channel, Principal, RouteContext
from threadline.auth import AuthRequest
from threadline.channel.tokens import matching
from threadline.principal import LOCAL
from threadline.session.access import Action
from threadline.store.base import SessionRecord
from threadline.testing import TestHost


class Pulls(Channel):
    """Names conversations as owners and repositories are named, in any letter case."""

    def __init__(self) -> None:
        tokens = matching(r"pr:[\w.-]+/[\w.-]+#\d+", example="pr:owner/name#1", folds=True)
        super().__init__(admission="coalesce", owner="channel", tokens=tokens, auth=[self.local])
        self.post("/in")(self.take)
        self.get("/where")(self.where)

    def local(self, request: AuthRequest) -> Principal:
        return LOCAL

    def may(self, principal: Principal, session: SessionRecord, action: Action) -> bool:
        return True

    async def take(self, ctx: RouteContext, body: str) -> None:
        await ctx.send("hello", continuation_token=body)

    async def where(self, ctx: RouteContext) -> dict[str, str | None]:
        found = ctx.session(ctx.query["token"])
        return {"session": found.id if found is not None else None}


async def test_a_conversation_is_one_in_any_letter_case() -> None:
    async with TestHost(Pulls) as host:
        for token in ("pr:octo/widget#7", "pr:Octo/Widget#7", "PR:OCTO/WIDGET#7"):
            assert (await host.post("/v1/channels/channel/in", json=token)).ok
        await host.rest()
        (session,) = host.sessions()
        found = await host.get("/v1/channels/channel/where?token=pr:Octo/WIDGET%237")
        assert found.json() == {"session": session.id}


@pytest.mark.parametrize(
    ("token", "status"), [("pr:Octo/WIDGET#7", 200), ("pr:octo/gadget#7", 409)]
)
async def test_who_continues_it_over_http_may_spell_it_so_too(token: str, status: int) -> None:
    async with TestHost(Pulls) as host:
        assert (await host.post("/v1/channels/channel/in", json="pr:octo/widget#7")).ok
        await host.rest()
        (session,) = host.sessions()
        body = {"message": "and the tests?", "continuationToken": token}
        assert (await host.post(f"/v1/session/{session.id}", json=body)).status == status
        await host.rest()
