"""The engine's own messages as plain data, spelled as its HTTP front spells them in JSON.

Pure: every field by its name, numbers as numbers, enumerations by name, defaults included; it judges nothing.
"""

from typing import Any

import numpy as np
from google.protobuf.message import Message


def plain(message: Message) -> dict[str, Any]:
    """A message as a dict; messages within it that are not set are left out."""
    return {
        field.name: _value(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of_value = field.message_type.fields_by_name["value"]
        return {str(key): _single(of_value, value[key]) for key in sorted(value)}
    if field.is_repeated:
        return [_single(field, item) for item in value]
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named else value
    if field.cpp_type == field.CPPTYPE_FLOAT:
        return float(str(np.float32(value)))  # 0.3, and not the double that is nearest to the float
    return value


def summed(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two engines' statistics of the same model version as one: counts and times add up, instants don't."""
    result = dict(one)
    for name, value in other.items():
        mine = one.get(name)
        if name == "last_inference":
            result[name] = max(mine or 0, value)
        elif name == "batch_stats":
            result[name] = _by_size([*(mine or []), *value])
        elif isinstance(value, dict):
            result[name] = summed(mine or {}, value)
        elif isinstance(value, int):
            result[name] = (mine or 0) + value
    return result


def _by_size(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sizes: dict[int, dict[str, Any]] = {}
    for entry in entries:
        size = entry["batch_size"]
        sizes[size] = summed(sizes.get(size, {}), entry) | {"batch_size": size}
    return [sizes[size] for size in sorted(sizes)]
