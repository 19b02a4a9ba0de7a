"""JSON schemas as a model is told them: without what only pydantic has use for. Pure."""

from typing import Any


def without_titles(schema: Any) -> Any:
    """The same without the titles that pydantic makes of names. A property may well be called `title`."""
    if isinstance(schema, list):
        return [without_titles(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name != "title" or not isinstance(value, str)}
    return {
        name: {each: without_titles(of) for each, of in value.items()}
        if name in ("properties", "$defs") and isinstance(value, dict)
        else value
        if name in ("default", "const", "enum", "examples")
        else without_titles(value)
        for name, value in kept.items()
    }
