"""The environment says who the bot is; what is wrong with it is said all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from threadline.errors import ProjectError
from threadline_github.config import API_URL, Config

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\n"


def test_a_token() -> None:
    config = Config.read({"GITHUB_WEBHOOK_SECRET": "s", "GITHUB_TOKEN": "ghp_x"})
    assert (config.token, config.app_id, config.api_url) == ("ghp_x", None, API_URL)
    assert "ghp_x" not in repr(config)


def test_an_app_with_its_key_in_each_form(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text(PEM)
    for key in (PEM, PEM.replace("\n", "\\n"), str(file)):
        names = {"SECRET": "s", "APP_ID": "2201", "KEY": key}
        config = Config.read(
            {
                "BOT_GITHUB_WEBHOOK_SECRET": names["SECRET"],
                "BOT_GITHUB_APP_ID": names["APP_ID"],
                "BOT_GITHUB_APP_PRIVATE_KEY": names["KEY"],
                "BOT_GITHUB_API_URL": "http://127.0.0.1:4630/",
            },
            "BOT_",
        )
        assert config.app_id == "2201"
        assert config.private_key is not None
        assert config.private_key.strip() == PEM.strip()
        assert config.api_url == "http://127.0.0.1:4630"


@pytest.mark.parametrize("key", ["c2VjcmV0" * 4, "c2VjcmV0" * 400, "c2VjcmV0\0"])
def test_a_key_in_another_form_is_not_shown(key: str) -> None:
    """Others take it in base64; what is wrong with it ends in a log."""
    named = {"GITHUB_APP_ID": key, "GITHUB_APP_PRIVATE_KEY": key, "GITHUB_API_URL": ""}
    with pytest.raises(ProjectError) as raised:
        Config.read(named)
    assert "c2VjcmV0" not in str(raised.value)


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({}, ["GITHUB_WEBHOOK_SECRET", "GITHUB_TOKEN"]),
        ({"GITHUB_APP_ID": "1"}, ["GITHUB_APP_PRIVATE_KEY"]),
        ({"GITHUB_APP_PRIVATE_KEY": PEM}, ["GITHUB_APP_ID"]),
        ({"GITHUB_APP_ID": "x", "GITHUB_APP_PRIVATE_KEY": PEM}, ["no number"]),
        ({"GITHUB_APP_ID": "1", "GITHUB_APP_PRIVATE_KEY": "/nowhere"}, ["neither a key"]),
        ({"GITHUB_APP_ID": "1", "GITHUB_APP_PRIVATE_KEY": "/etc/hostname"}, ["no private key"]),
        ({"GITHUB_TOKEN": "t", "GITHUB_APP_ID": "1", "GITHUB_APP_PRIVATE_KEY": PEM}, ["not both"]),
        ({"GITHUB_API_URL": "ftp://x"}, ["no address"]),
    ],
)
def test_what_is_wrong_is_named(environ: dict[str, str], named: list[str]) -> None:
    with pytest.raises(ProjectError) as raised:
        Config.read(environ)
    assert all(name in str(raised.value) for name in named)
