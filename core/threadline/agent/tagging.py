"""The tool with which the model makes artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, create_model, model_validator
from pydantic_core import PydanticCustomError

from threadline.agent.artifacts import Artifacts
from threadline.agent.context import ToolContext
from threadline.agent.tools import Tool, tool
from threadline.errors import InvalidRequest

__all__ = ["tag_artifact"]

_ABOUT = """\
Store something durable that people can fetch: a record, a file, or both. The same kind and key
again replaces what was stored, whole. The kinds are:
{kinds}"""


def tag_artifact(artifacts: Artifacts) -> Tool:
    """Return the tool, with the agent's kinds in its description and its schema."""
    kinds = "\n".join(f"- {name}: {kind.description}" for name, kind in artifacts.kinds.items())

    async def tag(
        kind: str,
        key: str,
        ctx: ToolContext,
        title: str | None = None,
        data: Any = None,
        content: str | None = None,
        path: Annotated[str | None, Field(alias="workspacePath")] = None,
        content_type: Annotated[str | None, Field(alias="contentType")] = None,
        filename: str | None = None,
    ) -> dict[str, Any]:
        artifact = await ctx.artifacts.tag(
            kind=kind,
            key=key,
            title=title,
            data=data,
            content=content if path is None else _in_workspace(path, content, ctx),
            content_type=content_type,
            filename=filename,
        )
        return {name: value for name, value in artifact.to_wire().items() if name != "data"}

    # The same kind and key again is the same artifact, so a call may be repeated; in a dry run it
    # stores nothing by itself, and its answer says what it would be.
    declared = tool(
        effect="write",
        idempotent=True,
        dry_run=tag,
        name="tag_artifact",
        description=_ABOUT.format(kinds=kinds),
    )(tag)
    return replace(
        declared,
        source="threadline",
        input_schema=_schema(artifacts),
        input_model=_checked(declared.input_model, artifacts),
    )


def _in_workspace(path: str, content: str | None, ctx: ToolContext) -> Path:
    if content is not None:
        raise InvalidRequest("Give content or workspacePath, not both.")
    if ctx.workspace is None:
        raise InvalidRequest("This call has no workspace: give the content itself.")
    if Path(path).is_absolute():
        raise InvalidRequest(f"{path} must be relative to the workspace.")
    return Path(path)


def _checked(model: type[BaseModel], artifacts: Artifacts) -> type[BaseModel]:
    """Return an input model that also holds the data against its kind's schema."""

    def check(self: Any) -> Any:
        try:
            artifacts.parse(self.argument_kind, self.argument_data)
        except InvalidRequest as error:
            raise PydanticCustomError("artifact", "{reason}", {"reason": error.message}) from None
        return self

    validators: dict[str, Any] = {"check": model_validator(mode="after")(check)}
    return create_model(model.__name__, __base__=model, __validators__=validators)


def _schema(artifacts: Artifacts) -> dict[str, Any]:
    """Return the input's JSON Schema; models do not take alternatives at its root."""
    text = {"type": "string"}
    schemas, definitions = _data_schemas(artifacts)
    about: dict[str, Any] = {"description": "What the kind says of it; a later tag replaces it."}
    data: Mapping[str, Any] = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    properties: dict[str, Any] = {
        "kind": {"type": "string", "enum": list(artifacts.kinds)},
        "key": text | {"description": "Names it within its kind, for example a ticket's number."},
        "title": text | {"description": "A line for people."},
        "data": about | dict(data),
        "content": text | {"description": "The text of its file."},
        "workspacePath": text | {"description": "Or the file: a path in the workspace."},
        "contentType": text | {"description": 'Such as "text/csv"; by default by the name.'},
        "filename": text | {"description": "What a download is called."},
    }
    schema = {
        "type": "object",
        "properties": properties,
        "required": ["kind", "key"],
        "additionalProperties": False,
    }
    return schema | ({"$defs": definitions} if definitions else {})


def _data_schemas(artifacts: Artifacts) -> tuple[list[Mapping[str, Any]], dict[str, Any]]:
    """Return the schema of each kind's data, and the definitions they share the root with."""
    schemas: list[Mapping[str, Any]] = []
    definitions: dict[str, Any] = {}
    for number, (name, kind) in enumerate(artifacts.kinds.items()):
        schema: Mapping[str, Any] = kind.json_schema or {}
        prefix = f"kind{number}_" if len(artifacts.kinds) > 1 else ""
        own = dict(_moved(schema, prefix))
        for definition, meaning in own.pop("$defs", {}).items():
            definitions[f"{prefix}{definition}"] = meaning
        schemas.append(own | {"title": f"data of {name}"})
    return schemas, definitions


def _moved(value: Any, prefix: str) -> Any:
    """Return a schema whose references name definitions with a prefix."""
    match value:
        case dict():
            return {
                key: f"#/$defs/{prefix}{item.removeprefix('#/$defs/')}"
                if key == "$ref" and isinstance(item, str)
                else _moved(item, prefix)
                for key, item in value.items()
            }
        case list():
            return [_moved(item, prefix) for item in value]
        case _:
            return value
