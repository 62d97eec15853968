"""Tools: their schemas, the system block that names them, and how a call is written and read back.

Templates without a tools branch get the *system-block* convention. The system message is an instruction, one line per
tool in signature form, and the answer rule; the answer is one JSON object per call, or the word `none`:

    move_to(place: string) - walk to a place
    set_light(state: on|off|dim) - set the light
    {"name": "set_light", "arguments": {"state": "dim"}}

The serialisation is fixed: `name` before `arguments`, arguments (and the keys of objects inside them) in the schema's
order, separators `, ` and `: `, real characters instead of escapes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from mlx_sentis.prepare.jsonl import loads, name_of
from mlx_sentis.prepare.schemas import normalised_schema

NONE = "none"  # the answer when no tool fits
SYSTEM_BLOCK, TEMPLATE = "system-block", "template"
SEPARATORS = (", ", ": ")
DEFAULT_INSTRUCTION = "You can call these tools."
ANSWER_RULE = 'Answer with one line of JSON, {"name": ..., "arguments": {...}}, or with none if no tool fits.'
NONE_RULE = "If no tool fits, answer none."
JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


@dataclass(frozen=True)
class Call:
    """One tool call: the tool's name and its arguments by name."""

    name: str
    arguments: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "arguments": self.arguments}

    def same_as(self, other: Call) -> bool:
        """Tell whether two calls are the same JSON values (`1`, `1.0` and `"1"` differ; key order does not count)."""
        mine, theirs = (json.dumps(call.as_json(), sort_keys=True) for call in (self, other))
        return mine == theirs


def normalised_tools(value: Any) -> list[dict[str, Any]]:
    """Return tools as `{"type": "function", "function": {"name", "description", "parameters"}}`.

    Args:
        value: a list of such objects or of bare `{"name", "description", "parameters"}`; None is no tools.

    Raises:
        ValueError: the first thing that is wrong, with its place.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"tools: found {name_of(value)}, wanted an array")
    tools = [_normalised_tool(item, f"tools[{index}]") for index, item in enumerate(value)]
    names = [tool["function"]["name"] for tool in tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"tools: {', '.join(twice)} is there twice")
    return tools


def _normalised_tool(item: Any, where: str) -> dict[str, Any]:
    function = item.get("function", item) if isinstance(item, dict) else item
    if not isinstance(function, dict):
        raise ValueError(f"{where}: found {name_of(function)}, wanted an object")
    name, parameters = function.get("name"), function.get("parameters") or {}
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"{where}.name: found {name_of(name)}, wanted a text")
    if not isinstance(parameters, dict) or not isinstance(parameters.get("properties", {}), dict):
        raise ValueError(f"{where}.parameters: wanted a JSON schema with properties")
    if any(not isinstance(schema, dict) for schema in parameters.get("properties", {}).values()):
        raise ValueError(f"{where}.parameters.properties: wanted an object per argument")
    if not isinstance(parameters.get("required", []), list):
        raise ValueError(f"{where}.parameters.required: wanted an array of names")
    description = function.get("description") or ""
    if not isinstance(description, str):
        raise ValueError(f"{where}.description: found {name_of(description)}, wanted a text")
    parameters = normalised_schema({"type": "object", "properties": {}} | parameters)
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def properties_of(tool: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return argument name to its schema, in the schema's order."""
    return tool["function"]["parameters"]["properties"]


def signature(tool: dict[str, Any]) -> str:
    """Return a tool as one line: `set_light(state: on|off|dim) - set the light`; optional arguments end in `?`."""
    required = tool["function"]["parameters"].get("required", list(properties_of(tool)))
    parts = [
        f"{name}{'' if name in required else '?'}: {_type_word(schema)}" for name, schema in properties_of(tool).items()
    ]
    description = " ".join(tool["function"]["description"].split())
    return f"{tool['function']['name']}({', '.join(parts)})" + (f" - {description}" if description else "")


def _type_word(schema: dict[str, Any]) -> str:
    if isinstance(schema.get("enum"), list):
        return "|".join(item if isinstance(item, str) else json.dumps(item) for item in schema["enum"])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return "|".join(map(str, kind))
    if kind == "array":
        items = schema.get("items")
        return f"{_type_word(items)}[]" if isinstance(items, dict) else "any[]"
    return str(kind)


def system_block(instruction: str, tools: list[dict[str, Any]]) -> str:
    """Return the system message of the system-block convention."""
    return "\n".join([instruction or DEFAULT_INSTRUCTION, *map(signature, tools), ANSWER_RULE])


def serialised(call: Call) -> str:
    """Return a call as it is trained, one line of JSON."""
    return json.dumps(call.as_json(), ensure_ascii=False, separators=SEPARATORS, allow_nan=False)


def read_call(value: Any, tools: list[dict[str, Any]], where: str) -> Call:
    """Return a row's call with its arguments in the schema's order.

    Args:
        value: `{"name", "arguments"}`, the same under `function`, or the JSON text of either; arguments are an object
            or its JSON text (`parameters` is taken for `arguments`, as Llama 3 writes it).
        tools: normalised tools; with none of them nothing is checked against a schema.
        where: the field's name, for errors.

    Raises:
        ValueError: not a call, an unknown tool or argument, one that is missing, or a value that the schema excludes.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _from_text(value, where)
    body = value.get("function", value) if isinstance(value, dict) else value
    if not isinstance(body, dict):
        raise ValueError(f'{where}: found {name_of(body)}, wanted {{"name", "arguments"}}')
    name, arguments = body.get("name"), body.get("arguments", body.get("parameters", {}))
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"{where}.name: found {name_of(name)}, wanted a tool's name")
    if isinstance(arguments, str):
        arguments = _from_text(arguments, f"{where}.arguments")
    if not isinstance(arguments, dict):
        raise ValueError(f"{where}.arguments: found {name_of(arguments)}, wanted an object or its JSON text")
    return _checked(Call(name, arguments), tools, where) if tools else Call(name, arguments)


def _from_text(text: str, where: str) -> Any:
    try:
        return loads(text)
    except ValueError as error:
        raise ValueError(f"{where}: the text is {error}") from None


def _checked(call: Call, tools: list[dict[str, Any]], where: str) -> Call:
    by_name = {tool["function"]["name"]: tool for tool in tools}
    if call.name not in by_name:
        raise ValueError(f"{where}.name: no tool {call.name!r}, known: {', '.join(sorted(by_name))}")
    schemas = properties_of(by_name[call.name])
    parameters = by_name[call.name]["function"]["parameters"]
    if unknown := sorted(call.arguments.keys() - schemas.keys()):
        known = f"known: {', '.join(schemas)}" if schemas else "it takes no arguments"
        raise ValueError(f"{where}.arguments: {call.name} has no {', '.join(unknown)}, {known}")
    if missing := [name for name in parameters.get("required", []) if name not in call.arguments]:
        raise ValueError(f"{where}.arguments: {call.name} wants {', '.join(missing)}")
    for name, value in call.arguments.items():
        _check_value(value, schemas[name], f"{where}.arguments.{name}")
    return Call(call.name, in_schema_order(call.arguments, parameters))


def in_schema_order(value: Any, schema: Any) -> Any:
    """Return a value with the keys of its objects in their schemas' order, at every depth.

    Keys that a schema does not name come last, in their own order.
    """
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [in_schema_order(item, schema.get("items")) for item in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    ordered = [*(key for key in properties if key in value), *(key for key in value if key not in properties)]
    return {key: in_schema_order(value[key], properties.get(key)) for key in ordered}


def _check_value(value: Any, schema: dict[str, Any], where: str) -> None:
    if isinstance(schema.get("enum"), list):
        # beside type array, people list what its items may be
        items = value if schema.get("type") == "array" and isinstance(value, list) else [value]
        if not all(any(item == one and type(item) is type(one) for one in schema["enum"]) for item in items):
            raise ValueError(f"{where}: found {json.dumps(value, ensure_ascii=False)}, wanted {_type_word(schema)}")
        return
    kinds = schema.get("type")
    kinds = [str(kind) for kind in (kinds if isinstance(kinds, list) else [kinds])]
    if any(kind not in JSON_TYPES for kind in kinds):  # no type, or a word that no dialect has: nothing to check
        return
    fits = any(isinstance(value, JSON_TYPES[kind]) and (kind == "boolean") == isinstance(value, bool) for kind in kinds)
    if not fits:
        raise ValueError(f"{where}: found {name_of(value)}, wanted {_type_word(schema)}")
