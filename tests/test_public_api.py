"""The public names, the import boundaries, and what an import costs."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import threadline

ROOT = Path(__file__).parent.parent
SOURCES = [
    ROOT / "core" / "threadline",
    ROOT / "channels" / "threadline_http",
    ROOT / "channels" / "threadline_mcp",
]
MODULES = sorted(path for source in SOURCES for path in source.rglob("*.py"))


def _name(path: Path) -> str:
    base = ROOT / ("core" if "core" in path.relative_to(ROOT).parts else "channels")
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _order(name: str) -> tuple[int, str]:
    """Sort as ruff does: constants, then classes, then the rest."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def _declared(path: Path) -> list[str] | None:
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = ast.literal_eval(node.value)
            assert isinstance(names, list)
            return names
    return None


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_a_module_says_what_it_exports_in_order(path: Path) -> None:
    """Every module with code has a sorted ``__all__`` whose names exist."""
    names = _declared(path)
    if names is None:
        assert path.name in ("__init__.py", "__main__.py"), f"{path} has no __all__"
        return
    assert names == sorted(names, key=_order)
    module = importlib.import_module(_name(path))
    for name in names:
        assert getattr(module, name) is not None


def test_every_public_name_resolves() -> None:
    """What ``threadline`` promises can be imported."""
    for name in threadline.__all__:
        assert getattr(threadline, name) is not None
    assert set(threadline.__all__) <= set(dir(threadline))


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A typo is told as Python tells it."""
    with pytest.raises(AttributeError, match="no attribute 'Chanel'"):
        threadline.Chanel  # noqa: B018


def _loaded_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    return set(out.split())


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import threadline", {"pydantic", "aiohttp", "structlog"}),
        ("from threadline import Agent, tool, Channel", {"aiohttp", "pydantic_ai", "sqlite3"}),
        (
            "from threadline.harness.pydantic_ai import PydanticAI\nPydanticAI('test')",
            {"pydantic_ai", "aiohttp"},
        ),
        ("import threadline.host.serve", {"pydantic_ai", "prometheus_client", "markdown_it"}),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(code: str, absent: set[str]) -> None:
    """Importing costs what is used, no more."""
    assert not _loaded_by(code) & absent


def test_arrows_run_only_downward() -> None:
    """The layers of the design hold, and core imports no channel."""
    # In a process of its own, because the linter reconfigures logging where it runs.
    run = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
