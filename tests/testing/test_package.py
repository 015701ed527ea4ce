"""What ``threadline.testing`` promises can be imported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from threadline import testing


def test_every_public_name_resolves() -> None:
    for name in testing.__all__:
        assert getattr(testing, name) is not None
    assert set(testing.__all__) <= set(dir(testing))


def test_the_names_for_type_checkers_are_the_names() -> None:
    tree = ast.parse(Path(testing.__file__).read_text("utf-8"))
    named = {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
    assert named - {"annotations", "TYPE_CHECKING", "Any"} == set(testing.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'TestHsot'"):
        testing.TestHsot  # noqa: B018
