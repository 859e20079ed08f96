"""A validator for the part of JSON Schema that the generated schemas use; an unknown keyword is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parents[2] / "docs/reference/schemas"

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
ANNOTATIONS = {"title", "description", "default", "$schema", "$defs"}


def validate(document: Any) -> None:
    """Check a document against the schema that it names; the message says where it differs."""
    name = document["schema"].removeprefix("rollbook.").replace("/", "-")
    schema = json.loads((SCHEMAS / f"{name}.json").read_bytes())
    problem = differs(document, schema, schema["$defs"])
    assert problem is None, problem


def differs(value: Any, schema: Any, parts: dict[str, Any], path: str = "$") -> str | None:
    """The first difference between a value and a schema with its path; None if the value is valid."""
    for keyword, wanted in schema.items():
        if keyword in ANNOTATIONS:
            continue
        check = globals()[f"_{keyword.strip('$').lower()}"]
        if problem := check(value, wanted, schema, parts, path):
            return str(problem)
    return None


def _ref(value: Any, wanted: str, _schema: Any, parts: Any, path: str) -> str | None:
    return differs(value, parts[wanted.rpartition("/")[2]], parts, path)


def _type(value: Any, wanted: str, _schema: Any, _parts: Any, path: str) -> str | None:
    fits = isinstance(value, TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))
    return None if fits else f"{path}: {value!r:.60} is no {wanted}"


def _enum(value: Any, wanted: list[Any], _schema: Any, _parts: Any, path: str) -> str | None:
    return None if value in wanted else f"{path}: {value!r:.60} is not one of {wanted}"


def _minimum(value: Any, wanted: float, _schema: Any, _parts: Any, path: str) -> str | None:
    return None if value >= wanted else f"{path}: {value!r:.60} is less than {wanted}"


def _maximum(value: Any, wanted: float, _schema: Any, _parts: Any, path: str) -> str | None:
    return None if value <= wanted else f"{path}: {value!r:.60} is more than {wanted}"


def _anyof(value: Any, wanted: list[Any], _schema: Any, parts: Any, path: str) -> str | None:
    problems = [differs(value, one, parts, path) for one in wanted]
    return None if None in problems else "; ".join(str(problem) for problem in problems)


def _required(value: Any, wanted: list[str], _schema: Any, _parts: Any, path: str) -> str | None:
    missing = [name for name in wanted if name not in value]
    return f"{path}: lacks {', '.join(missing)}" if missing else None


def _properties(value: Any, wanted: dict[str, Any], schema: Any, parts: Any, path: str) -> str | None:
    rest = schema.get("additionalProperties", {})
    problems = (differs(value[name], wanted.get(name, rest), parts, f"{path}.{name}") for name in value)
    return next(filter(None, problems), None)


def _additionalproperties(value: Any, wanted: Any, schema: Any, parts: Any, path: str) -> str | None:
    known = schema.get("properties", {})
    problems = (differs(value[name], wanted, parts, f"{path}.{name}") for name in value if name not in known)
    return next(filter(None, problems), None)


def _items(value: Any, wanted: Any, _schema: Any, parts: Any, path: str) -> str | None:
    problems = (differs(one, wanted, parts, f"{path}[{at}]") for at, one in enumerate(value))
    return next(filter(None, problems), None)
