"""Defines settings: the type of a setting, the values that it allows, and Kafka's messages for invalid values.

The tables of settings are `odradek.broker.configuration.broker_settings` and `unused_settings` for the broker, and
`odradek.broker.configuration.topic_settings` for topics, groups and client metrics. Messages are identical to Kafka's,
because clients receive them in the responses to CreateTopics and AlterConfigs. Source: observed behaviour of ConfigDef
in Kafka 4.3.1.
"""

from collections.abc import Mapping
from enum import Enum
from math import isinf
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar, overload

from odradek.protocol.quoting import shortened

T = TypeVar("T")
SettingValue = bool | int | float | str | tuple[str, ...] | None


class ValueType(Enum):
    """The type of a setting. The numbers are the config types of DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    """The scope in which AlterConfigs can change a broker setting while the broker is running (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


MAX_DIGITS = 19  # maximum number of digits of a LONG; Python refuses to parse numbers with thousands of digits


class InvalidSetting(ValueError):
    """Raised if a setting does not allow a value. `args[0]` is the message for the client. It quotes the value, so it
    is shortened."""

    def __init__(self, sentence: str) -> None:
        super().__init__(shortened(sentence))


class ValueRule(Protocol):
    """A rule that restricts the values of a setting. It is applied after parsing."""

    def check(self, name: str, value: SettingValue) -> None:
        """Raises InvalidSetting if the value is not allowed."""

    def describe(self) -> str:
        """Describes the allowed values for an error message."""


class Range(NamedTuple):
    """Allows numbers from `least` to `most`, both inclusive."""

    least: float
    most: float | None = None

    def check(self, name: str, value: SettingValue) -> None:
        if value is None:
            raise invalid_setting(name, None, "Value must be non-null")
        assert isinstance(value, (int, float))
        if value < self.least:
            raise invalid_setting(name, value, f"Value must be at least {self.least}")
        if self.most is not None and value > self.most:
            raise invalid_setting(name, value, f"Value must be no more than {self.most}")

    def describe(self) -> str:
        return f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"


class GzipLevel(NamedTuple):
    """Allows zlib levels, and -1 for the codec's default."""

    def check(self, name: str, value: SettingValue) -> None:
        if value != -1 and not (isinstance(value, int) and 1 <= value <= 9):
            raise invalid_setting(name, value, "Value must be between 1 and 9 or equal to -1")

    def describe(self) -> str:
        return "1 to 9, or -1"


class OneOf(NamedTuple):
    values: tuple[str, ...]
    ignore_case: bool = False

    def check(self, name: str, value: SettingValue) -> None:
        is_known = value.upper() in self.values if self.ignore_case and isinstance(value, str) else value in self.values
        if not is_known:
            manner = " (case insensitive)" if self.ignore_case else ""
            raise invalid_setting(name, value, f"String must be one of{manner}: {', '.join(self.values)}")

    def describe(self) -> str:
        return "one of " + ", ".join(self.values)


class ListOf(NamedTuple):
    """Allows lists whose elements are in `values`, or lists of any elements if `values` is empty."""

    values: tuple[str, ...] = ()
    may_be_empty: bool = True

    def check(self, name: str, value: SettingValue) -> None:
        if value is None:
            return
        assert isinstance(value, tuple)
        if not value and not self.may_be_empty:
            valid = f"[{', '.join(self.values)}]" if self.values else "any non-empty value"
            raise InvalidSetting(f"Configuration '{name}' must not be empty. Valid values include: {valid}")
        for one in value:
            if not one:
                raise InvalidSetting(f"Configuration '{name}' values must not be empty.")
            if self.values and one not in self.values:
                raise invalid_setting(name, one, f"String must be one of: {', '.join(self.values)}")

    def describe(self) -> str:
        what = "a comma-separated list of " + (", ".join(self.values) or "values")
        return what if self.may_be_empty else f"{what}, not empty"


class NonEmptyText(NamedTuple):
    def check(self, name: str, value: SettingValue) -> None:
        if value == "":
            raise invalid_setting(name, "", "String must be non-empty")

    def describe(self) -> str:
        return "not empty"


class CountPerAddress(NamedTuple):
    """Allows lists of `address:number` pairs, such as `10.0.0.1:5,host:7`."""

    def check(self, name: str, value: SettingValue) -> None:
        assert isinstance(value, str)
        for pair in value.split(","):
            address, _, count = pair.rpartition(":")
            if pair.strip() and not (address.strip() and count.strip().isdecimal()):
                raise invalid_setting(name, pair, "Expected address:count")

    def describe(self) -> str:
        return "address:count pairs, comma-separated"


class TimePerPrefix(NamedTuple):
    """Allows lists of `prefix=milliseconds` pairs. A prefix may contain `=`, but not a comma."""

    @staticmethod
    def read(pair: str) -> tuple[str, int] | None:
        """Returns the prefix and its milliseconds, or None if the text does not have this form."""
        prefix, _, time_ms = pair.rpartition("=")
        is_number = time_ms.isascii() and time_ms.isdecimal()
        return (prefix, int(time_ms)) if prefix and is_number and int(time_ms) > 0 else None

    def check(self, name: str, value: SettingValue) -> None:
        assert isinstance(value, tuple)
        seen = set()
        for one in value:
            pair = self.read(one)
            if pair is None:
                raise invalid_setting(
                    name, one, "Expected prefix=milliseconds, with a prefix and at least 1 millisecond"
                )
            if pair[0] in seen:
                raise invalid_setting(name, one, f"Two rules have the prefix {pair[0]}")
            seen.add(pair[0])

    def describe(self) -> str:
        return "prefix=milliseconds, each prefix once"


class Setting(NamedTuple):
    """A row in a table of settings, which completely describes one setting.

    default      the default as it is written in a file, or None if the setting has no default
    text         the documentation that DescribeConfigs returns
    is_internal  whether Kafka considers the setting internal; it has an effect, but DescribeConfigs does not show it
    synonyms     for a topic setting, the broker settings that supply its default; the first one with a value takes
                 effect
    """

    name: str
    kind: ValueType
    default: str | None
    text: str
    allowed: ValueRule | None = None
    update: UpdateMode = UpdateMode.READ_ONLY
    is_internal: bool = False
    synonyms: tuple[str, ...] = ()

    def parse(self, text: str | None) -> SettingValue:
        """Parses and checks `text`. Raises InvalidSetting with Kafka's message."""
        value = parse_text(self.name, self.kind, text)
        if value is None and self.default is not None and self.kind is not ValueType.STRING:
            raise invalid_setting(self.name, None, "Value must be non-null")
        if isinstance(value, tuple) and isinstance(self.allowed, ListOf):
            value = tuple(dict.fromkeys(value))  # repeated values are dropped
        if self.allowed is not None and (value is not None or self.default is not None):
            self.allowed.check(self.name, value)
        return value

    def describe_allowed(self) -> str:
        words = KIND_WORDS.get(self.kind, "a text")
        if self.allowed is None:
            return words
        rule = self.allowed.describe()
        return rule if isinstance(self.allowed, (OneOf, ListOf)) else f"{words}, {rule}"


Rule: TypeAlias = ValueRule | None


class SettingRow(Generic[T]):
    """A descriptor that forms a row in a class of settings. The setting is named after the attribute, with `.` instead
    of `_`. The attribute's value is a `T`."""

    __slots__ = ("setting",)

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def __set_name__(self, owner: type[object], attribute: str) -> None:
        self.setting = self.setting._replace(name=attribute.replace("_", "."))

    def __get__(self, config: object, owner: type[object]) -> T:
        """Raises AttributeError. Python only calls this method while no value is set, because an instance attribute of
        the same name takes precedence over this descriptor."""
        raise AttributeError(self.setting.name)


class SettingKind(Generic[T]):
    """A type of setting whose values are of type `T`. Calling it creates a row."""

    def __init__(self, kind: ValueType) -> None:
        self.kind = kind

    @overload
    def __call__(
        self, default: str, text: str, allowed: Rule = ..., update: UpdateMode = ..., *, is_internal: bool = ...
    ) -> SettingRow[T]: ...

    @overload
    def __call__(
        self, default: None, text: str, allowed: Rule = ..., update: UpdateMode = ..., *, is_internal: bool = ...
    ) -> SettingRow[T | None]: ...

    def __call__(
        self,
        default: str | None,
        text: str,
        allowed: Rule = None,
        update: UpdateMode = UpdateMode.READ_ONLY,
        *,
        is_internal: bool = False,
    ) -> SettingRow[T] | SettingRow[T | None]:
        return SettingRow(Setting("", self.kind, default, text, allowed, update, is_internal))


MINUTE_MS, HOUR_MS = 60_000, 3_600_000
KIND_WORDS: Mapping[ValueType, str] = {
    ValueType.BOOLEAN: "true or false",
    ValueType.LIST: "a comma-separated list",
    ValueType.DOUBLE: "a number",
    ValueType.SHORT: "a whole number",
    ValueType.INT: "a whole number",
    ValueType.LONG: "a whole number",
}
INTEGER_LIMITS: Mapping[ValueType, int] = {
    ValueType.SHORT: 1 << 15,
    ValueType.INT: 1 << 31,
    ValueType.LONG: 1 << 63,
}


def unit_ms(name: str) -> int:
    """Returns the length in milliseconds of the time unit at the end of the setting's name, or 1 if the name does not
    end in minutes or hours."""
    return {"minutes": MINUTE_MS, "hours": HOUR_MS}.get(name.rpartition(".")[2], 1)


def java_double(value: float) -> str:
    """Formats a double as Java does. Absolute values from 0.001 to just below ten million have no exponent."""
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal  # imported here because the import is slow and rarely needed

    number = Decimal(repr(value))
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"


def invalid_setting(name: str, value: object, why: str) -> InvalidSetting:
    shown = "null" if value is None else java_double(value) if isinstance(value, float) else value
    return InvalidSetting(f"Invalid value {shown} for configuration {name}: {why}")


def parse_text(name: str, kind: ValueType, text: str | None) -> SettingValue:
    """Parses `text` as a value of type `kind` without applying the setting's rule. Raises InvalidSetting."""
    if text is None:
        return None
    given, text = text, text.strip()
    if kind is ValueType.BOOLEAN:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise invalid_setting(name, given, "Expected value to be either true or false")
        return lowered == "true"
    if kind in INTEGER_LIMITS:
        digits = text[1:] if text[:1] in ("+", "-") else text
        is_number = digits.isdecimal() and digits.isascii() and len(digits.lstrip("0")) <= MAX_DIGITS
        number = int(digits.lstrip("0") or "0") * (-1 if text[:1] == "-" else 1) if is_number else None
        if number is None or not -INTEGER_LIMITS[kind] <= number < INTEGER_LIMITS[kind]:
            raise invalid_setting(name, given, f"Not a number of type {kind.name}")
        return number
    if kind is ValueType.DOUBLE:
        if not text.isascii() or any(letter not in "0123456789.eE+-" for letter in text):
            # The characters are checked first, because Python would also accept "nan" and "1_0".
            raise invalid_setting(name, given, "Not a number of type DOUBLE")
        try:
            return float(text)
        except ValueError:
            raise invalid_setting(name, given, "Not a number of type DOUBLE") from None
    if kind is ValueType.LIST:
        return tuple(part.strip() for part in text.split(",")) if text else ()
    return text
