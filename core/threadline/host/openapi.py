"""The OpenAPI 3.1 document of what is served, made from the very routes that serve it."""

from __future__ import annotations

import asyncio
import http
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from threadline.channel.answers import JSON, Content, ErrorAnswer, Status
from threadline.channel.auth import Policy, scheme_of
from threadline.channel.channel import Route
from threadline.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    ThreadlineError,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from threadline.host.endpoint import BODY_METHODS
from threadline.host.respond import HINTS
from threadline.version import VERSION

__all__ = ["Document", "Mounted", "Place", "document"]

_REF = "#/components/schemas/"
_PARAMETER = re.compile(r"{(\w+)(?::([^{}]+))?}")
_ANY_ERROR = (Forbidden, NotFound, Conflict)


@dataclass(frozen=True, slots=True)
class Mounted:
    """A route at its path below the server's address; ``chain`` is None where there is no auth."""

    path: str
    route: Route
    tag: str
    chain: Sequence[Policy] | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """What a document is about, and the address that its paths are below."""

    title: str
    description: str
    url: str


class Document:
    """Serves one document; it is made when it is first asked for, and again at a new address."""

    def __init__(
        self, place: Callable[[], Place], mounted: Callable[[], Iterable[Mounted]]
    ) -> None:
        self._place = place
        self._mounted = mounted
        self._made: tuple[Place, bytes] | None = None

    async def body(self) -> bytes:
        """Return the document's bytes."""
        place = self._place()
        if self._made is None or self._made[0] != place:
            mounted = list(self._mounted())
            self._made = place, await asyncio.to_thread(_encoded, place, mounted)
        return self._made[1]


def _encoded(place: Place, mounted: list[Mounted]) -> bytes:
    return orjson.dumps(document(place, mounted))


def document(place: Place, mounted: Iterable[Mounted]) -> dict[str, Any]:
    """Return the document; a type that JSON Schema cannot say is documented as anything."""
    schemas = _Schemas()
    schemes = _Schemes()
    names = _Names()
    paths: dict[str, dict[str, Any]] = {}
    for one in mounted:
        operation = _operation(one, names.of(one), schemas, schemes)
        path = _PARAMETER.sub(r"{\1}", one.path)
        paths.setdefault(path, {})[one.route.method.lower()] = operation
    components: dict[str, Any] = {"schemas": schemas.fill()}
    # Queries are shown parameter by parameter, which is known only now.
    for operations in paths.values():
        for operation in operations.values():
            _spread_query(operation, components["schemas"])
    made = {
        "openapi": "3.1.0",
        "info": {"title": place.title, "version": VERSION, "description": place.description},
        "servers": [{"url": place.url or "/"}],
        "paths": paths,
        "components": components,
    }
    components["schemas"] = _reachable(made, components["schemas"])
    if schemes.found:
        components["securitySchemes"] = schemes.found
    return made


class _Names:
    """Gives each operation an id of its own, by its method and path."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, one: Mounted) -> str:
        path = _PARAMETER.sub(r"by_\1", one.path.removeprefix("/v1"))
        words = [one.route.method.lower(), *re.findall(r"[A-Za-z0-9]+(?:_\w+)*", path)]
        name = "_".join(words)
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


# Operations


def _operation(one: Mounted, name: str, schemas: _Schemas, schemes: _Schemes) -> dict[str, Any]:
    route = one.route
    text = inspect.cleandoc(route.description)
    operation: dict[str, Any] = {"operationId": name, "tags": [one.tag]}
    if text:
        operation["summary"] = _first(text).rstrip(".")
        operation["description"] = text
    parameters = [*_path_parameters(one.path), *_headers(route)]
    if parameters:
        operation["parameters"] = parameters
    if route.query is not None:
        operation["x-query"] = schemas.of(route.query, "validation")
    if route.body is not None:
        body = schemas.of(route.body, "validation")
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {JSON: {"schema": body}},
        }
    operation["responses"] = _responses(one, schemas)
    security = _security(one, schemes)
    if security is not None:
        operation["security"] = security
    return operation


def _path_parameters(path: str) -> Iterator[dict[str, Any]]:
    for name, pattern in _PARAMETER.findall(path):
        schema = {"type": "string", "minLength": 1}
        if pattern:
            schema["pattern"] = f"^(?:{pattern})$"
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _headers(route: Route) -> Iterator[dict[str, Any]]:
    for name, sentence in route.headers.items():
        schema = {"type": "string"}
        yield {"name": name, "in": "header", "description": sentence, "schema": schema}


def _spread_query(operation: dict[str, Any], components: Mapping[str, Any]) -> None:
    model = operation.pop("x-query", None)
    if model is None:
        return
    schema = components.get(model.get("$ref", "").removeprefix(_REF), model)
    required = schema.get("required", [])
    parameters = operation.setdefault("parameters", [])
    for name, field in schema.get("properties", {}).items():
        parameter = {"name": name, "in": "query", "required": name in required}
        if "description" in field:
            parameter["description"] = field["description"]
        parameters.append(parameter | {"schema": _without_null(field)})


def _without_null(field: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field's schema without null, which a query cannot say."""
    schema = {key: value for key, value in field.items() if key != "description"}
    if schema.get("default", 0) is None:
        del schema["default"]
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) == 1:
        del schema["anyOf"]
        return {**kinds[0], **schema}
    return schema


def _security(one: Mounted, schemes: _Schemes) -> list[dict[str, list[str]]] | None:
    """Return what a chain wants, any one of it; None when a policy of it does not say."""
    if one.chain is None:
        return []
    wanted: list[dict[str, list[str]]] = []
    for policy in one.chain:
        scheme = scheme_of(policy)
        if scheme is None:
            return None
        need: dict[str, list[str]] = {schemes.name(policy, scheme, one.tag): []} if scheme else {}
        if need not in wanted:
            wanted.append(need)
    return wanted or None


class _Schemes:
    """Names the credentials that policies want: one policy, one name."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def name(self, policy: Policy, scheme: Mapping[str, Any], tag: str) -> str:
        if id(policy) not in self._names:
            kind = str(scheme.get("name") or scheme.get("scheme") or scheme.get("type") or "auth")
            name = re.sub(r"[^\w.-]+", "_", kind)
            while name in self.found:
                name = f"{tag}_{name}"
            self._names[id(policy)] = name
            self.found[name] = dict(scheme)
        return self._names[id(policy)]


# Answers


def _responses(one: Mounted, schemas: _Schemas) -> dict[str, Any]:
    route = one.route
    answers: dict[Status, list[Content]] = {s: list(c) for s, c in route.answers.items()}
    errors = _errors(one, "default" in answers)
    for status in errors:
        answers.setdefault(status, []).append(Content(JSON, ErrorAnswer))
    made = {}
    for status in sorted(answers, key=str):
        response: dict[str, Any] = {"description": _described(status, errors.get(status, []))}
        if content := _content(answers[status], schemas):
            response["content"] = content
        hints = HINTS.get(status, {}) if isinstance(status, int) and status in errors else {}
        if hints:
            always = status not in route.responses
            header = {"required": always, "schema": {"type": "string"}}
            response["headers"] = {name: dict(header) for name in hints}
        made[str(status)] = response
    return made


def _errors(one: Mounted, is_open: bool) -> dict[Status, list[type[ThreadlineError]]]:
    """Return the errors that the route may give, by status."""
    kinds: list[type[ThreadlineError]] = []
    if one.chain is not None:
        kinds += [InvalidRequest, Unauthorized, Unavailable]
    if one.chain is not None and one.route.method in BODY_METHODS:
        kinds.append(TooLarge)
    if one.route.raises is not None:
        kinds += one.route.raises
    elif not is_open:
        # Of an answer that only the handler knows, "default" speaks for these.
        kinds += _ANY_ERROR
    kinds.append(ThreadlineError)
    found: dict[Status, list[type[ThreadlineError]]] = {}
    for kind in dict.fromkeys(kinds):
        found.setdefault(kind.status, []).append(kind)
    return found


def _described(status: Status, errors: Sequence[type[ThreadlineError]]) -> str:
    if errors:
        return "\n\n".join(f"`{kind.code}`: {_meaning(kind)}" for kind in errors)
    if status == "default":
        return "Whatever else the handler answers."
    return http.HTTPStatus(status).phrase if status in list(http.HTTPStatus) else str(status)


def _meaning(kind: type[ThreadlineError]) -> str:
    if kind is ThreadlineError:
        return "Something went wrong here; the host's log has the details."
    return _first(inspect.getdoc(kind) or kind.__name__)


def _content(contents: Sequence[Content], schemas: _Schemas) -> dict[str, Any]:
    by_media: dict[str, list[dict[str, Any]]] = {}
    for content in contents:
        schema = _body(content, schemas)
        found = by_media.setdefault(content.media, [])
        # By identity: schemas are empty until all are known.
        if not any(schema is other for other in found):
            found.append(schema)
    return {media: {"schema": _any_of(found)} for media, found in by_media.items()}


def _body(content: Content, schemas: _Schemas) -> dict[str, Any]:
    if content.lines:
        return {"type": "string", "description": "Events as they are recorded, one JSON a line."}
    if content.type is Any or content.type is bytes:
        return {}
    return schemas.of(content.type, "serialization")


def _any_of(found: list[dict[str, Any]]) -> dict[str, Any]:
    return found[0] if len(found) == 1 else {"anyOf": found}


def _first(text: str) -> str:
    """Return a text's first paragraph on one line."""
    return " ".join(text.split("\n\n")[0].split())


# Schemas

_Mode = Literal["validation", "serialization"]


class _Lenient(GenerateJsonSchema):
    """Says "anything" of a type that JSON Schema cannot say; repeats no field's name as title."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        return {}


class _Schemas:
    """Collects the types of a document, so that all are named at once and none twice.

    A schema that :meth:`of` returns is empty until :meth:`fill`.
    """

    def __init__(self) -> None:
        self._wanted: list[tuple[dict[str, Any], TypeAdapter[Any], _Mode]] = []
        self._known: dict[tuple[Any, _Mode], dict[str, Any]] = {}

    def of(self, annotation: Any, mode: _Mode) -> dict[str, Any]:
        """Return the schema of a type, or of an adapter."""
        key = (id(annotation) if _is_unhashable(annotation) else annotation, mode)
        if key not in self._known:
            slot = self._known[key] = {}
            if (adapter := _adapter(annotation)) is not None:
                self._wanted.append((slot, adapter, mode))
        return self._known[key]

    def fill(self) -> dict[str, Any]:
        """Fill what was returned, and return the components that it refers to."""
        inputs = [(n, mode, adapter) for n, (_, adapter, mode) in enumerate(self._wanted)]
        made, common = TypeAdapter.json_schemas(
            inputs, ref_template=_REF + "{model}", schema_generator=_Lenient
        )
        for n, (slot, _, mode) in enumerate(self._wanted):
            slot.update(made[n, mode])
        definitions: dict[str, Any] = common.get("$defs", {})
        return definitions


def _is_unhashable(annotation: Any) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return True
    return False


def _adapter(annotation: Any) -> TypeAdapter[Any] | None:
    if isinstance(annotation, TypeAdapter):
        return annotation
    try:
        return TypeAdapter(annotation)
    except (PydanticUserError, PydanticSchemaGenerationError, NameError, TypeError):
        return None


def _reachable(made: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schemas that the paths refer to, by each other too."""
    found: dict[str, Any] = {}
    todo = set(_references(made["paths"]))
    while todo:
        name = todo.pop()
        if name not in found and name in schemas:
            found[name] = schemas[name]
            todo |= set(_references(schemas[name]))
    return dict(sorted(found.items()))


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            if isinstance(part, str) and part.startswith(_REF) and key != "description":
                yield part.removeprefix(_REF)
            yield from _references(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _references(part)
