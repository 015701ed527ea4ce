"""Signatures as the services document them."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from threadline.testing import Inbound, github_signature, signed_request, slack_signature


def test_github_as_its_documentation_shows() -> None:
    expected = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert github_signature("It's a Secret to Everybody", "Hello, World!") == expected


def test_slack_as_its_documentation_shows() -> None:
    body = (
        "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
        "&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
        "&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
        "%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        "&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    found = slack_signature("8f742231b10e8888abcd99yyyzzz85a5", body, 1531420618)
    assert found == "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"


def test_a_signed_request_has_the_headers_of_its_scheme() -> None:
    assert signed_request("s", b"x", scheme="github", path="/hook") == Inbound(
        "POST",
        "/hook",
        {"content-type": "application/json", "x-hub-signature-256": github_signature("s", b"x")},
        b"x",
    )
    slack = signed_request("s", "x", scheme="slack", timestamp=7, headers={"x-more": "1"})
    assert slack.headers == {
        "content-type": "application/json",
        "x-slack-signature": slack_signature("s", b"x", "7"),
        "x-slack-request-timestamp": "7",
        "x-more": "1",
    }


def test_the_general_scheme_signs_the_body_and_the_timestamp() -> None:
    def digest(message: bytes) -> str:
        return hmac.new(b"s", message, hashlib.sha256).hexdigest()

    plain = signed_request("s", {"a": "é"}, header="X-Own")
    assert plain.body == b'{"a":"\\u00e9"}'
    assert plain.headers["X-Own"] == digest(plain.body)
    stamped = signed_request(b"s", b"x", timestamp=9)
    assert stamped.headers["x-signature"] == digest(b"9.x")
    assert stamped.headers["x-timestamp"] == "9"


def test_what_does_not_fit_the_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="give timestamp="):
        signed_request("s", b"x", scheme="slack")
    with pytest.raises(ValueError, match="leave it out"):
        signed_request("s", b"x", scheme="github", timestamp=1)
    with pytest.raises(ValueError, match="There is no scheme 'md5'"):
        signed_request("s", b"x", scheme="md5")  # type: ignore[arg-type]
