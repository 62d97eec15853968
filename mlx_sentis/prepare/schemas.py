"""The types of tools' arguments: other dialects' words brought to JSON Schema's.

Tools come with `dict`, `float` or `tuple` (Python, BFCL), `HashMap` or `String` (Java), `STRING` (Gemini). A template
prints the schema as it is given, so one word per type is settled here, before anything is rendered.
"""

from __future__ import annotations

import re
from typing import Any

WORDS = {
    "string": ("string", "str", "char", "character", "text"),
    "integer": ("integer", "int", "long", "short", "byte", "bigint"),
    "number": ("number", "float", "double"),
    "boolean": ("boolean", "bool"),
    "array": ("array", "list", "tuple", "set", "arraylist", "queue", "stack"),
    "object": ("object", "dict", "hashmap", "hashtable", "map"),
    "null": ("null", "none", "nonetype"),
}
TYPE_OF = {word: kind for kind, words in WORDS.items() for word in words}
ANY = "any"  # JSON Schema has no word for it: the type is left out
OF = re.compile(r"(\w+)\[(.*)\]", re.DOTALL)  # List[str], Dict[str, int]


def normalised_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with JSON Schema's types at every depth; a word that no dialect has stays as it is."""
    new = dict(schema)
    kind = schema.get("type")
    if isinstance(kind, str):
        new |= _typed(kind, schema)
        if "type" not in new or new["type"] == ANY:
            new.pop("type", None)
    elif isinstance(kind, list):
        new["type"] = [TYPE_OF.get(word.lower(), word) if isinstance(word, str) else word for word in kind]
    if isinstance(properties := schema.get("properties"), dict):
        new["properties"] = {name: _inner(inner) for name, inner in properties.items()}
    for key in ("items", "additionalProperties"):
        if key in schema:
            new[key] = _inner(schema[key])
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(several := schema.get(key), list):
            new[key] = [_inner(inner) for inner in several]
    return new


def _inner(schema: Any) -> Any:
    return normalised_schema(schema) if isinstance(schema, dict) else schema


def _typed(word: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the `type` of a dialect's word, and `items` where the word says them (`List[str]`)."""
    lowered = word.strip().lower()
    if lowered == ANY:
        return {"type": ANY}
    if lowered in TYPE_OF:
        return {"type": TYPE_OF[lowered]}
    match = OF.fullmatch(word.strip())
    if not match or TYPE_OF.get(match[1].lower()) not in ("array", "object"):
        return {"type": word}
    kind, inner = TYPE_OF[match[1].lower()], TYPE_OF.get(match[2].strip().lower())
    if kind == "array" and inner and "items" not in schema:
        return {"type": kind, "items": {"type": inner}}
    return {"type": kind}
