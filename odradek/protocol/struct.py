"""The base class of every generated message class."""

from typing import Any, ClassVar, TypeAlias, TypeVar

from mypy_extensions import mypyc_attr

Buffer: TypeAlias = bytes | bytearray | memoryview
# The records of a message. A list stands for the concatenation of its parts.
RecordChunks: TypeAlias = bytes | bytearray | memoryview | list[Buffer]

ZERO_UUID = bytes(16)

# The default of parameters, which is replaced with a new empty list or a new struct with default values. None cannot be
# used, because it means null.
UNSET: Any = object()


@mypyc_attr(allow_interpreted_subclasses=True)
class Struct:
    """A mutable value with one slot for each field of its schema in any version. Structs are equal if all fields are
    equal."""

    __slots__: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


@mypyc_attr(allow_interpreted_subclasses=True)
class Message(Struct):
    """A struct that is sent or stored as a unit and has versions."""

    __slots__ = ()
    API_KEY: ClassVar[int]  # the API key or the record type; missing for messages that have neither
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_SINCE: ClassVar[int | None]


S = TypeVar("S", bound=Struct)


def _new(made: type[S]) -> S:
    return made.__new__(made)


# Creates a struct whose fields will be set later. In pure Python this is `object.__new__`, which cannot create
# instances of compiled classes; their own `__new__` sets the default values.
new = object.__new__ if Struct.__new__ is object.__new__ else _new
