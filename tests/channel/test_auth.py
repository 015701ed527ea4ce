"""Who is admitted: the policies, and how a chain of them is walked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from threadline.channel.auth import (
    AuthRequest,
    Policy,
    admit,
    anonymous,
    bearer,
    host_name,
    is_loopback,
    local_dev_strict,
)
from threadline.errors import Forbidden, Unauthorized
from threadline.principal import LOCAL, Principal

if TYPE_CHECKING:
    from collections.abc import Sequence

ANN = Principal("user", "ann")


def request(peer: str | None = "127.0.0.1", **headers: str) -> AuthRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return AuthRequest("POST", "/v1/session", {"host": "127.0.0.1:3000", **named}, peer=peer)


async def admits(chain: Sequence[Policy], asked: AuthRequest) -> Principal | None:
    try:
        return await admit(chain, asked)
    except Unauthorized:
        return None


ADMITTED = {
    "IPv4": request(),
    "another loopback address": request("127.8.9.10"),
    "IPv6": request("::1", host="[::1]:3000"),
    "IPv4 within IPv6": request("::ffff:127.0.0.1"),
    "by name": request(host="localhost:3000"),
    "by name, in capitals": request(host="LOCALHOST"),
    "without a port": request(host="localhost"),
    "its own page": request(origin="http://127.0.0.1:3000", sec_fetch_site="same-origin"),
    "typed into a browser": request(sec_fetch_site="none"),
}
REFUSED = {
    "another machine": request("192.0.2.7"),
    "another machine that says it is this one": request("192.0.2.7", host="localhost"),
    "a Unix socket": request(None),
    "a name that resolves here": request(host="rebound.example:3000"),
    "a name that begins like ours": request(host="127.0.0.1.example.org"),
    "a name that begins with ours": request(host="localhost.example.org"),
    "an address with a user": request(host="evil.example@localhost"),
    "an address with a path": request(host="localhost/x"),
    "two hosts": request(host="localhost, evil.example"),
    "no host": request(host=""),
    "a broken host": request(host="[::1"),
    "every address": request(host="0.0.0.0:3000"),
    "a proxy": request(x_forwarded_for="127.0.0.1"),
    "a proxy that names the protocol": request(x_forwarded_proto="https"),
    "a proxy that names itself": request(x_forwarded_server="edge"),
    "a proxy by the standard": request(forwarded="for=127.0.0.1"),
    "a proxy on the way": request(via="1.1 edge"),
    "nginx": request(x_real_ip="127.0.0.1"),
    "Cloudflare": request(cf_connecting_ip="127.0.0.1"),
    "another site": request(origin="https://evil.example"),
    "another port": request(origin="http://127.0.0.1:4000"),
    "another name of ours": request(origin="http://localhost:3000"),
    "a sandboxed page": request(origin="null"),
    "a file": request(origin="file://"),
    "a broken origin": request(origin="http://[::1"),
    "a link on another site": request(sec_fetch_site="cross-site"),
    "a link on another port": request(sec_fetch_site="same-site"),
}


@pytest.mark.parametrize("asked", ADMITTED.values(), ids=list(ADMITTED))
async def test_local_dev_strict_admits(asked: AuthRequest) -> None:
    assert await admits([local_dev_strict()], asked) == LOCAL


@pytest.mark.parametrize("asked", REFUSED.values(), ids=list(REFUSED))
async def test_local_dev_strict_refuses(asked: AuthRequest) -> None:
    assert await admits([local_dev_strict()], asked) is None


@pytest.mark.parametrize(
    ("set_to", "sent", "admitted"),
    [
        ("s3cret", "Bearer s3cret", True),
        ("s3cret", "bearer   s3cret ", True),
        ("s3cret\n", "Bearer s3cret", True),
        ("sécret", "Bearer sécret", True),
        ("s3cret", "Bearer s3cre", False),
        ("s3cret", "Bearer s3cret2", False),
        ("s3cret", "Bearer S3CRET", False),
        ("s3cret", "Basic s3cret", False),
        ("s3cret", "s3cret", False),
        ("s3cret", "Bearer \udcff", False),
        ("s3cret", "Bearer", False),
        ("s3cret", "", False),
        ("", "Bearer ", False),
        ("", "Bearer", False),
        ("   ", "Bearer    ", False),
        (None, "Bearer ", False),
        (None, "Bearer None", False),
    ],
)
async def test_bearer_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, set_to: str | None, sent: str, admitted: bool
) -> None:
    if set_to is None:
        monkeypatch.delenv("A_TOKEN", raising=False)
    else:
        monkeypatch.setenv("A_TOKEN", set_to)
    found = await admits([bearer(env="A_TOKEN")], request("192.0.2.7", authorization=sent))
    assert found == (Principal("bearer", "A_TOKEN") if admitted else None)


async def test_bearer_by_token_and_with_a_principal() -> None:
    asked = request(authorization="Bearer one")
    assert await admits([bearer(token="one", principal=ANN)], asked) == ANN
    unnamed = await admits([bearer(token="one")], asked)
    assert unnamed is not None
    assert unnamed.kind == "bearer"
    assert "one" not in unnamed.id
    assert await admits([bearer(token="")], request(authorization="Bearer ")) is None
    both: dict[str, Any] = {"env": "A", "token": "b"}
    for wrong in ({}, both):
        with pytest.raises(ValueError, match="exactly one"):
            bearer(**wrong)


async def test_a_forwarded_request_may_bear_a_token() -> None:
    asked = request("10.0.0.1", host="agents.example", x_forwarded_for="203.0.113.9")
    assert await admits([local_dev_strict(), bearer(token="t")], asked) is None
    headers = {**asked.headers, "authorization": "Bearer t"}
    asked = AuthRequest("GET", "/", headers, peer="10.0.0.1")
    assert await admits([local_dev_strict(), bearer(token="t", principal=ANN)], asked) == ANN


async def test_a_chain_is_walked_in_order() -> None:
    asked: list[str] = []

    def passing(_: AuthRequest) -> None:
        asked.append("passing")

    async def admitting(_: AuthRequest) -> Principal:
        await asyncio.sleep(0)
        asked.append("admitting")
        return ANN

    def refusing(_: AuthRequest) -> None:
        asked.append("refusing")
        raise Unauthorized("Not you.")

    assert await admits([passing, admitting, refusing], request()) == ANN
    assert asked == ["passing", "admitting"]
    assert await admits([refusing, anonymous()], request()) is None
    assert await admits([], request()) is None
    assert await admits([passing], request()) is None
    assert await admits([anonymous()], request("192.0.2.7")) == Principal("anonymous", "anonymous")
    assert await admits([anonymous(ANN)], request()) == ANN


async def test_a_check_that_cannot_be_made_is_a_failed_check() -> None:
    def broken(_: AuthRequest) -> Principal:
        raise KeyError("x-signature")

    def vague(_: AuthRequest) -> Any:
        return True

    async def broken_later(_: AuthRequest) -> Principal:
        raise ConnectionError("the identity provider is down")

    def unreadable(_: AuthRequest) -> Principal:
        return Principal("user", "\udcff")

    for policy in (broken, vague, broken_later, unreadable):
        assert await admits([policy, anonymous()], request()) is None


async def test_a_policy_may_raise_another_documented_error() -> None:
    def forbidding(_: AuthRequest) -> None:
        raise Forbidden("This key was revoked.")

    with pytest.raises(Forbidden):
        await admit([forbidding, anonymous()], request())


@pytest.mark.parametrize(
    ("host", "name"),
    [("a:1", "a"), ("A.b", "a.b"), ("[::1]:80", "::1"), ("a:b", None), ("", None), (None, None)],
)
def test_host_name(host: str | None, name: str | None) -> None:
    assert host_name(host) == name


def test_is_loopback() -> None:
    assert is_loopback("localhost")
    assert not is_loopback(None)
    assert not is_loopback("localhost.")
    assert not is_loopback("10.0.0.1")
