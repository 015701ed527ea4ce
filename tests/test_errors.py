"""The tree of errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from threadline import errors
from threadline.errors import ProjectError, StaleToken, ThreadlineError


def tree(root: type[ThreadlineError] = ThreadlineError) -> Iterator[type[ThreadlineError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


ALL = list(tree())


def test_every_error_is_public_and_drawn_in_the_tree() -> None:
    names = {error.__name__ for error in ALL}
    assert names == set(errors.__all__)
    assert errors.__all__ == sorted(errors.__all__)
    for name in names:
        assert f"{name}\n" in (errors.__doc__ or "") or f"{name} " in (errors.__doc__ or "")


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_codes_are_stable_words_and_statuses_http(error: type[ThreadlineError]) -> None:
    assert error.code.replace("_", "").isalpha()
    assert error.code == error.code.lower()
    assert 400 <= error.status < 600
    if error.__subclasses__() == []:
        assert sum(other.code == error.code for other in ALL) in (1, 2)


def test_the_wire_form_names_the_code_and_the_details() -> None:
    error = StaleToken("Use the newest.", nextIndex=3)
    assert str(error) == "Use the newest."
    assert error.to_wire() == {
        "ok": False,
        "error": "stale_token",
        "message": "Use the newest.",
        "nextIndex": 3,
    }


def test_a_project_error_lists_its_problems() -> None:
    error = ProjectError(["a.py:1: x", "b.py:2: y"])
    assert error.message == "a.py:1: x\nb.py:2: y"
    assert error.to_wire()["problems"] == ["a.py:1: x", "b.py:2: y"]
