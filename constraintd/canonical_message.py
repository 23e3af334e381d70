"""Protocol messages in the canonical encoding.

Protobuf promises no fixed bytes for a message: they may differ by version and language. A log or an envelope needs the
same message to be the same bytes, so its set fields are written by ascending number here.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from constraintd.encoding import Reader, Writer

M = TypeVar("M", bound=Message)
_MAX_DEPTH = 32
_FLOATS = (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT)


def write_message(writer: Writer, message: Message) -> None:
    """Its set fields, each by its number, and 0 behind them. Unknown fields are left out."""
    for field, value in message.ListFields():
        writer.unsigned(field.number)
        if field.is_repeated:
            writer.unsigned(len(value))
            for element in value:
                _write_value(writer, field, element)
        else:
            _write_value(writer, field, value)
    writer.unsigned(0)


def read_message(reader: Reader, kind: type[M], depth: int = 0) -> M:
    """A message of this type. Raises InvalidEnvelope."""
    if depth > _MAX_DEPTH:
        raise reader.error("messages are nested too deeply")
    message = kind()
    fields = kind.DESCRIPTOR.fields_by_number
    last = 0
    while number := reader.unsigned():
        if number <= last or number not in fields:
            raise reader.error(f"{kind.DESCRIPTOR.name} has no field {number} here")
        last = number
        field = fields[number]
        if field.is_repeated:
            into = getattr(message, field.name)
            for _ in range(reader.count()):
                into.append(_read_value(reader, field, depth))
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(message, field.name).CopyFrom(_read_value(reader, field, depth))
        else:
            setattr(message, field.name, _read_value(reader, field, depth))
    return message


def _write_value(writer: Writer, field: Any, value: Any) -> None:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        write_message(writer, value)
    elif field.type in _FLOATS:
        writer.float(value)
    elif field.type == FieldDescriptor.TYPE_BYTES:
        writer.data(value)
    elif field.type == FieldDescriptor.TYPE_STRING:
        writer.text(value)
    else:
        writer.unsigned(int(value))


def _read_value(reader: Reader, field: Any, depth: int) -> Any:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return read_message(reader, GetMessageClass(field.message_type), depth + 1)
    if field.type in _FLOATS:
        return reader.float()
    if field.type == FieldDescriptor.TYPE_BYTES:
        return reader.data()
    if field.type == FieldDescriptor.TYPE_STRING:
        return reader.text()
    value = reader.unsigned()
    if field.type == FieldDescriptor.TYPE_BOOL:
        if value not in (0, 1):
            raise reader.error(f"{field.name} is no flag")
        return bool(value)
    if value >= (1 << 64 if field.type in _WIDE else 1 << 31 if field.type in _SIGNED else 1 << 32):
        raise reader.error(f"{field.name} is out of range")
    return value


_WIDE = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)
_SIGNED = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM)
