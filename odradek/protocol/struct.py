"""The base class of every generated message class."""

from typing import Any, ClassVar, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
RecordChunks: TypeAlias = bytes | bytearray | memoryview | list[Buffer]  # a list stands for its parts joined

ZERO_UUID = bytes(16)

# Stands for "a new empty list" or "a new struct of defaults" in signatures, where None would mean null.
UNSET: Any = object()


class Struct:
    """A value with one slot per field of its schema, all versions together. Equal when all fields are."""

    __slots__: tuple[str, ...] = ()
    __hash__ = None  # type: ignore[assignment]  # mutable

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


class Message(Struct):
    """A struct that travels, or is stored, on its own: it has versions."""

    __slots__ = ()
    API_KEY: ClassVar[int]  # or the type of the record; missing where a message has neither
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_SINCE: ClassVar[int | None]
