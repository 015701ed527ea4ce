"""Kinds of artifacts, what a tag stores, whose it is, and what the session's log says of it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.session.host import ALICE, Host, until
from typing_extensions import TypedDict

from threadline import Artifact, Artifacts, Kind, Principal
from threadline.agent.shelf import ContextArtifacts, Place, Shelf, content_type_of, extension_of
from threadline.errors import Forbidden, InvalidRequest, NotFound, StoreUnavailable, TooLarge
from threadline.harness.base import Turn
from threadline.harness.scripted import Scripted
from threadline.project import Project
from threadline.session.access import Action
from threadline.testing.faults import Crashed

BOB = Principal("user", "bob")


class Incident(BaseModel):
    """What happened."""

    severity: int = Field(ge=1, le=4, alias="sev")
    service: str
    status: str = "open"
    since: date | None = None


@dataclass
class Point:
    x: int
    tags: list[str] = field(default_factory=list)


class Named(TypedDict):
    name: str


INCIDENTS = Artifacts(kinds={"incident": Kind("An incident.", schema=Incident)})


# Declaring


class TestKinds:
    def test_the_parsed_value_is_stored(self) -> None:
        data = {"sev": "2", "service": "checkout", "since": "2025-01-02"}
        wanted = {"sev": 2, "service": "checkout", "status": "open", "since": "2025-01-02"}
        assert INCIDENTS.parse("incident", data) == wanted
        assert INCIDENTS.parse("incident", Incident(**data)) == wanted  # type: ignore[arg-type]

    def test_any_type_that_json_can_be_read_into(self) -> None:
        artifacts = Artifacts(
            kinds={
                "point": Kind("A point.", schema=Point),
                "named": Kind("Named.", schema=Named),
                "many": Kind("Many.", schema=list[int]),
                "free": Kind("Whatever."),
            }
        )
        assert artifacts.parse("point", {"x": "1"}) == {"x": 1, "tags": []}
        assert artifacts.parse("point", Point(2, ["a"])) == {"x": 2, "tags": ["a"]}
        assert artifacts.parse("named", {"name": "n"}) == {"name": "n"}
        assert artifacts.parse("many", (1, "2")) == [1, 2]
        assert artifacts.parse("free", {"a": float("nan"), "b": date(2025, 1, 2)}) == {
            "a": None,
            "b": "2025-01-02",
        }
        assert artifacts.parse("free", None) is None

    def test_data_that_does_not_fit_is_refused_with_each_reason(self) -> None:
        with pytest.raises(InvalidRequest) as refused:
            INCIDENTS.parse("incident", {"sev": 9})
        assert "sev: Input should be less than or equal to 4" in refused.value.message
        assert "service: Field required" in refused.value.message
        with pytest.raises(InvalidRequest, match="service: Field required"):
            INCIDENTS.parse("incident", None)

    def test_other_kinds_are_refused_where_kinds_are_declared(self) -> None:
        with pytest.raises(InvalidRequest, match=r'no kind of artifact "report".* incident'):
            INCIDENTS.parse("report", {})
        assert Artifacts().parse("anything at all", {"a": 1}) == {"a": 1}

    @pytest.mark.parametrize("kind", ["", " ", "a\nb", "x" * 101, 5, None])
    def test_a_kind_is_a_line(self, kind: Any) -> None:
        with pytest.raises(InvalidRequest, match="kind is 1 to 100"):
            Artifacts().parse(kind, None)

    @pytest.mark.parametrize("data", [{"a": "x" * 300_000}, 2**70])
    def test_data_that_cannot_be_stored_is_refused(self, data: Any) -> None:
        with pytest.raises(InvalidRequest, match="data"):
            Artifacts().parse("any", data)

    def test_what_discovery_says(self) -> None:
        assert Artifacts().to_wire() == {"kinds": [], "agentTool": False, "max": 1000}
        (kind,) = INCIDENTS.to_wire()["kinds"]
        assert (kind["name"], kind["description"]) == ("incident", "An incident.")
        assert set(kind["schema"]["properties"]) == {"sev", "service", "status", "since"}


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda: Kind(" "), "description"),
        (lambda: Kind("K", schema=5), "Kind"),
        (lambda: Kind("K", schema=type("Odd", (), {})), "Kind.schema=Odd"),
        (lambda: Artifacts(kinds=["a"]), "must map"),  # type: ignore[arg-type]
        (lambda: Artifacts(kinds={"a": "A text."}), '"a" must be a Kind'),  # type: ignore[dict-item]
        (lambda: Artifacts(kinds={"a\nb": Kind("K")}), "cannot name a kind"),
        (lambda: Artifacts(agent_tool=True), "needs at least one kind"),
        (lambda: Artifacts(agent_tool="yes"), "agent_tool"),  # type: ignore[arg-type]
        (lambda: Artifacts(max=0), "max=…"),
        (lambda: Artifacts(max=True), "max=…"),
        (lambda: Artifacts(max_bytes=1.5), "max_bytes=…"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_declared(declare: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        declare()


# In a project


HEAD = "from threadline import Artifacts, Kind\n"


class TestProject:
    def load(self, root: Path, text: str, agent: str = "agent = Agent()") -> Any:
        from threadline.project import load_project

        folder = root / "bot" / "agent"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "instructions.md").write_text("Be brief.")
        (folder / "artifacts.py").write_text(text)
        (folder / "agent.py").write_text(
            f"from threadline import Agent, Artifacts, Kind\n{agent}\n"
        )
        return load_project(root / "bot")

    def test_kinds_are_discovered(self, tmp_path: Path) -> None:
        text = f'{HEAD}artifacts = Artifacts(kinds={{"report": Kind("A report.")}}, max=5)\n'
        project = self.load(tmp_path, text)
        assert list(project.artifacts.kinds) == ["report"]
        assert project.artifacts.max == 5

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "artifacts.py:1: declares no artifacts: write artifacts = Artifacts(…)."),
            ("\nartifacts = {}\n", "artifacts.py:2: artifacts is a dict: write"),
            (
                f"{HEAD}\n\nartifacts = Artifacts(agent_tool=True)\n",
                "artifacts.py:4: Artifacts(agent_tool=True) needs at least one kind",
            ),
            (
                f'{HEAD}\nclass Odd: ...\nKIND = Kind("K", schema=Odd)\n',
                "artifacts.py:4: Kind(schema=Odd): no JSON value can be read into this type",
            ),
        ],
    )
    def test_problems_have_file_and_line(self, tmp_path: Path, text: str, said: str) -> None:
        from threadline.errors import ProjectError

        with pytest.raises(ProjectError) as refused:
            self.load(tmp_path, text)
        (problem,) = refused.value.problems
        assert f"agent/{said}" in problem

    def test_they_are_declared_once(self, tmp_path: Path) -> None:
        from threadline.errors import ProjectError

        with pytest.raises(ProjectError, match=r"artifacts\.py:1: .* keep one"):
            self.load(
                tmp_path, f"{HEAD}artifacts = Artifacts()\n", "agent = Agent(artifacts=Artifacts())"
            )

    def test_an_agent_made_in_code(self) -> None:
        from threadline import Agent

        project = Project.of(Agent(instructions="x", artifacts=INCIDENTS))
        assert project.artifacts is INCIDENTS
        with pytest.raises(ValueError, match=r"Agent\.artifacts"):
            Agent(artifacts={"incident": 1})  # type: ignore[arg-type]


# Tagging


def view(host: Host, conversation: str | None = "a", **place: Any) -> ContextArtifacts:
    """Return what code in Alice's session, or without one, is given."""
    shelf = Shelf(host.core, url=lambda path: f"http://bot{path}")
    there = Place(ALICE)
    if conversation is not None:
        there = shelf.in_session(host.session_id(conversation))
    there = dataclasses.replace(there, **place)

    def reach(session_id: str, _: Action) -> Place:
        found = shelf.in_session(session_id)
        if found.owner != there.owner:
            raise Forbidden("no")
        return found

    return shelf.at(there, reach)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    host = await Host(tmp_path / "state").start()
    await host.send("d1")
    await host.rest()
    yield host
    await host.close()


async def test_a_tag_is_stored_and_then_told(host: Host) -> None:
    artifacts = view(host)
    made = await artifacts.tag(
        kind="report", key="INC-1", title="Checkout", data={"a": 1}, content="hé"
    )
    assert made.content_url == f"http://bot/v1/artifacts/{made.id}/content"
    assert (made.size, made.content_type) == (3, "text/plain")
    assert await artifacts.get(made.id) == made
    assert await artifacts.list() == [made]
    assert await artifacts.read(made.id) == "hé".encode()
    (event,) = host.events(type_="artifact.tagged")
    assert event["data"] == {
        "artifactId": made.id,
        "kind": "report",
        "key": "INC-1",
        "title": "Checkout",
    }
    assert "turnId" not in event
    again = await artifacts.tag(kind="report", key="INC-1")
    assert again.id == made.id
    assert (again.title, again.data, again.content_url) == (None, None, None)
    assert await artifacts.read(made.id) is None
    assert [e["data"].get("title") for e in host.events(type_="artifact.tagged")] == [
        "Checkout",
        None,
    ]
    await host.rest()


async def test_an_artifact_without_a_kind(host: Host) -> None:
    assert (await view(host).tag(key="k")).kind == "artifact"


async def test_the_event_is_on_stable_storage_when_the_tag_returns(host: Host) -> None:
    made = await view(host).tag(key="k")
    await host.restart(power_cut=True)
    (event,) = host.events(type_="artifact.tagged")
    assert event["data"]["artifactId"] == made.id


async def test_what_was_told_is_not_told_again(host: Host) -> None:
    await view(host).tag(key="k")
    await host.close()
    await host.start()
    await Shelf(host.core).start()
    assert len(host.events(type_="artifact.tagged")) == 1


async def test_in_a_turn_the_event_names_it(tmp_path: Path) -> None:
    made: list[Artifact] = []
    late: list[asyncio.Task[Artifact]] = []

    async def script(turn: Turn) -> str:
        shelf = Shelf(running.core)
        place = shelf.in_session(running.session_id())
        here = Place(place.owner, place.session_id, turn.id, place.workspace)
        artifacts = shelf.at(here, lambda *_: place)
        made.append(await artifacts.tag(key="k"))
        late.append(asyncio.ensure_future(_after(running, artifacts)))
        return "done"

    running = await Host(tmp_path / "state", Scripted(script)).start()
    await running.send("d1")
    await running.rest()
    await asyncio.wait(late)
    first, second = running.events(type_="artifact.tagged")
    (started,) = running.events(type_="turn.started")
    assert first["turnId"] == started["turnId"]
    assert "turnId" not in second
    await running.rest()
    running.check()
    await running.close()


async def _after(host: Host, artifacts: ContextArtifacts) -> Artifact:
    """Tag when the turn has ended, as a tool that was cut off may."""
    await until(lambda: host.events(type_="turn.completed"))
    return await artifacts.tag(key="late")


async def test_a_crash_between_the_artifact_and_its_event(tmp_path: Path) -> None:
    """Whatever write the process dies at, what is stored is told once the agent starts again."""
    for crash_at in range(1, 60):
        host = await Host(tmp_path / str(crash_at)).start()
        await host.send("d1")
        await host.rest()
        host.disk.revive(crash_at)
        with contextlib.suppress(Crashed, StoreUnavailable):
            await view(host).tag(key="k", content=b"x")
        if not host.disk.dead:
            await host.close()
            assert crash_at > 8
            return
        await host.restart(power_cut=crash_at % 2 == 0)
        await Shelf(host.core).start()
        stored = [r.artifact.id for r in host.core.store.artifacts.list()]
        told = {e["data"]["artifactId"] for e in host.events(type_="artifact.tagged")}
        assert told == set(stored), crash_at
        await host.rest()
        host.check()
        await host.close()
    pytest.fail("the scenario never ended")


async def test_what_a_drained_host_could_not_tell_is_told_later(host: Host) -> None:
    await host.core.drain(0)
    made = await view(host).tag(key="k")
    assert host.events(type_="artifact.tagged") == []
    await host.close()
    await host.start()
    await Shelf(host.core).start()
    (event,) = host.events(type_="artifact.tagged")
    assert event["data"]["artifactId"] == made.id


async def test_a_cancelled_tag_is_whole(host: Host) -> None:
    tagging = asyncio.create_task(view(host).tag(key="k", content=b"x" * 100_000))
    await asyncio.sleep(0)
    tagging.cancel()
    await asyncio.wait([tagging])
    assert tagging.cancelled()
    await until(lambda: host.events(type_="artifact.tagged"))
    (made,) = await view(host).list()
    assert await view(host).read(made.id) == b"x" * 100_000


async def test_a_dry_run_stores_nothing(host: Host) -> None:
    dry = view(host, dry_run=True)
    pretended = await dry.tag(key="k", data={"a": 1}, content=b"abc", filename="a.csv")
    assert (pretended.dry_run, pretended.size, pretended.content_type) == (True, 3, "text/csv")
    assert pretended.to_wire()["dryRun"] is True
    assert pretended.content_url is None
    assert await dry.list() == []
    assert host.events(type_="artifact.tagged") == []
    real = await view(host).tag(key="k", content=b"abc")
    again = await dry.tag(key="k")
    assert (again.id, again.dry_run) == (real.id, True)
    assert await dry.delete(real.id)
    assert await view(host).get(real.id) == real
    with pytest.raises(InvalidRequest):
        await dry.tag(key="")


async def test_what_a_tag_may_say(host: Host) -> None:
    artifacts = view(host)
    wrong: list[dict[str, Any]] = [
        {"key": ""},
        {"key": "a\nb"},
        {"key": "x" * 201},
        {"key": "\ud800"},
        {"key": 5},
        {"key": "k", "kind": ""},
        {"key": "k", "title": " "},
        {"key": "k", "title": "x" * 301},
        {"key": "k", "content": 5},
        {"key": "k", "content": "\ud800"},
        {"key": "k", "filename": "a.txt"},
        {"key": "k", "content_type": "text/plain"},
        {"key": "k", "content": "x", "content_type": "html"},
        {"key": "k", "content": "x", "content_type": "text/html\r\nX: y"},
        {"key": "k", "content": "x", "filename": "../a"},
        {"key": "k", "content": "x", "filename": "a\\b"},
        {"key": "k", "content": "x", "filename": ".."},
        {"key": "k", "content": "x", "filename": "a\r\nb"},
        {"key": "k", "content": Path("nothing.txt")},
        {"key": "k", "content": Path("/nothing.txt")},
        {"key": "k", "content": Path("/")},
    ]
    for options in wrong:
        with pytest.raises(InvalidRequest):
            await artifacts.tag(**options)
    assert await artifacts.list() == []
    with pytest.raises(InvalidRequest):
        await artifacts.list(limit=0)


async def test_a_workspace_file_is_read_without_following_links(host: Host, tmp_path: Path) -> None:
    artifacts = view(host)
    folder = host.core.folder(host.session_id())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "out").mkdir()
    (folder / "out" / "report.md").write_text("# Report")
    for path in (Path("out/report.md"), folder / "out" / "report.md"):
        made = await artifacts.tag(key="k", content=path)
        assert (made.filename, made.content_type) == ("report.md", "text/markdown")
        assert await artifacts.read(made.id) == b"# Report"
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (folder / "f").symlink_to(secret)
    (folder / "d").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    for name in ("f", "d/secret.txt", "../secret.txt", "out", "pipe", "missing"):
        for path in (Path(name), folder / name, folder.resolve() / name):
            with pytest.raises(InvalidRequest):
                await artifacts.tag(key="x", content=path)
    outside = await artifacts.tag(key="outside", content=secret)
    assert await artifacts.read(outside.id) == b"secret"
    with pytest.raises(InvalidRequest, match="no workspace"):
        await view(host, None).tag(key="x", content=Path("out/report.md"))


async def test_a_workspace_that_is_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "secret").write_text("secret")
    host = await Host(tmp_path / "link" / "state").start()
    await host.send("d1")
    await host.rest()
    folder = host.core.folder(host.session_id()).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report").write_text("x")
    (folder / "f").symlink_to(tmp_path / "secret")
    assert (await view(host).tag(key="k", content=folder / "report")).size == 1
    with pytest.raises(InvalidRequest):
        await view(host).tag(key="k", content=folder / "f")
    await host.close()


async def test_content_has_a_limit(host: Host) -> None:
    shelf = Shelf(host.core, Artifacts(max_bytes=4, max=2))
    artifacts = shelf.at(Place(ALICE), lambda *_: Place(ALICE))
    await artifacts.tag(key="a", content=b"1234")
    for dry_run in (False, True):
        place = Place(ALICE, dry_run=dry_run)
        with pytest.raises(TooLarge):
            await shelf.at(place, lambda *_: Place(ALICE)).tag(key="a", content=b"12345")
    await artifacts.tag(key="b")
    await artifacts.tag(key="c")
    assert [found.key for found in await artifacts.list()] == ["c", "b"]


async def test_whose_it_is(host: Host) -> None:
    await host.send("d2", "b", by=BOB, owner=BOB)
    await host.rest()
    alices = await view(host).tag(key="k")
    bobs = await view(host, "b").tag(key="k")
    free = await view(host, None).tag(key="free")
    assert alices.id != bobs.id
    assert await view(host).list() == [free, alices]
    assert await view(host, "b").list() == [bobs]
    assert await view(host).list(session_id=host.session_id()) == [alices]
    assert await view(host).list(kind="other") == []
    assert await view(host).list(session_id="ses_none") == []
    for call in (
        lambda: view(host).get(bobs.id),
        lambda: view(host).read(bobs.id),
        lambda: view(host).delete(bobs.id),
        lambda: view(host, "b").get(free.id),
        lambda: view(host).list(session_id=host.session_id("b")),
        lambda: view(host).tag(key="k", session_id=host.session_id("b")),
    ):
        with pytest.raises(Forbidden):
            await call()
    with pytest.raises(NotFound):
        await view(host).tag(key="k", session_id="ses_none")
    assert await view(host).get("art_none") is None
    assert await view(host).read("art_none") is None
    assert not await view(host).delete("art_none")
    assert await view(host, "b").delete(bobs.id)
    assert await view(host, "b").list() == []


async def test_code_without_a_session_may_tag_in_one(host: Host) -> None:
    made = await view(host, None).tag(key="k", session_id=host.session_id())
    assert made.session_id == host.session_id()
    assert len(host.events(type_="artifact.tagged")) == 1
    again = await view(host, None).tag(key="k")
    assert (again.id, again.session_id) == (made.id, made.session_id)
    assert len(host.events(type_="artifact.tagged")) == 1


async def test_artifacts_outlive_their_session(host: Host) -> None:
    artifacts = view(host)
    made = await artifacts.tag(key="k", content=b"x")
    session_id = host.session_id()
    await host.core.delete(session_id)
    assert await artifacts.list(session_id=session_id) == [made]
    assert await artifacts.read(made.id) == b"x"
    with pytest.raises(NotFound):
        await artifacts.tag(key="k", content=b"late")
    assert await artifacts.read(made.id) == b"x"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.csv", "text/csv"),
        ("a.MD", "text/markdown"),
        ("a.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("a.html", "text/html"),
        ("a.unknown-thing", None),
        ("noextension", None),
        (None, None),
    ],
)
def test_media_types_by_name(name: str | None, kind: str | None) -> None:
    assert content_type_of(name) == kind
    if kind is not None:
        assert content_type_of(f"x{extension_of(kind)}") == kind
