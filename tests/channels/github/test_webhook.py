"""A webhook's signature is over the very bytes; its body is JSON or a form."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import quote_plus

import pytest

from threadline.errors import InvalidRequest
from threadline_github.inbound.webhook import is_signed, parse

SECRET = "github-webhook-secret-for-tests"
BODY = b'{\n  "action" : "created", "text": "ol\\u00e9"}'
JSON = "application/json"


def signature(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def test_the_bytes_that_came_are_signed() -> None:
    assert is_signed(SECRET, BODY, signature(BODY))
    assert not is_signed(SECRET, BODY + b" ", signature(BODY))
    assert not is_signed(SECRET, BODY, signature(BODY, "another"))


@pytest.mark.parametrize("header", ["", "sha256=", "sha1=abc", "é", signature(BODY)[7:]])
def test_what_is_no_signature_admits_nobody(header: str) -> None:
    assert not is_signed(SECRET, BODY, header)


def test_no_secret_admits_nobody() -> None:
    assert not is_signed("", BODY, signature(BODY, ""))


def test_json_and_forms_say_the_same() -> None:
    text = '{"body": "@agent-fixture a+b & 100%"}'
    form = f"payload={quote_plus(text)}".encode()
    assert parse(JSON, text.encode()) == {"body": "@agent-fixture a+b & 100%"}
    assert parse("Application/X-WWW-Form-Urlencoded; charset=utf-8", form) == parse(
        "application/json; charset=utf-8", text.encode()
    )


@pytest.mark.parametrize(
    ("media", "body"),
    [
        (JSON, b"[]"),
        (JSON, b'"x"'),
        (JSON, b'{"action":'),
        (JSON, b"\xff"),
        ("application/x-www-form-urlencoded", b"other=1"),
        ("application/x-www-form-urlencoded", b"\xff"),
        ("application/x-www-form-urlencoded", b"payload=[]"),
        ("text/plain", b"{}"),
    ],
)
def test_other_bodies_are_refused(media: str, body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse(media, body)
