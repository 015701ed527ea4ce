"""Known secrets never reach a log, and a masked line is still a line."""

from __future__ import annotations

import json

from threadline.host.mask import masker, secret_values


def test_which_variables_hold_secrets() -> None:
    environment = {
        "SLACK_BOT_TOKEN": "xoxb-12345678",
        "DB_PASSWORD": "correct horse",
        "OPENAI_API_KEY": "sk-longer-than-eight",
        "APP_PRIVATE_KEY": "line one\nline two",
        "SLACK_ENCRYPTION_KEY": "a-key-of-fernet",
        "SHORT_TOKEN": "1234567",
        "PATH": "/usr/bin:/bin",
    }
    found = secret_values(environment, more=["given-token", "short"])
    assert set(found) == {
        "xoxb-12345678",
        "correct horse",
        "sk-longer-than-eight",
        "line one\nline two",
        "a-key-of-fernet",
        "given-token",
    }


def test_a_masked_line_stays_json() -> None:
    mask = masker(['quo"te\\slash', "line one\nline two", "päßword", "12345678", "-1.5e-100"])
    event = {
        "text": 'a quo"te\\slash b, line one\nline two, päßword, päßwor, 12345678!',
        "number": 12345678,
        "longer": 9123456780,
        "float": -1.5e-100,
    }
    for ascii_only in (True, False):
        line = mask(json.dumps(event, ensure_ascii=ascii_only).encode())
        masked = json.loads(line)
        assert masked["text"] == "a [masked] b, [masked], [masked], päßwor, 99999999!"
        assert masked["number"] == 99999999
        assert masked["longer"] == 9999999990
        assert isinstance(masked["float"], float)


def test_nothing_to_mask() -> None:
    assert masker([])(b"as it is") == b"as it is"
