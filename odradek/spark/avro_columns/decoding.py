"""Decodes a column in Confluent's wire format with Spark's own `from_avro`.

A value begins with a zero byte and the id of the writer's schema. The expression contains one `from_avro` for each of
the subject's schema ids. They all use the same reader schema, so records of all versions decode to the same type.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import BinaryType

from odradek.client.schema_registry.address import DEFAULT_URL, VARIABLE, registry_address
from odradek.client.schema_registry.client import SchemaRegistryClient
from odradek.registry.values import HEADER, LAST_ID, MAGIC
from odradek.spark.avro_columns.subject import FIELD, AvroSubject, SubjectError, read_subject
from odradek.spark.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FAILFAST: Final = "FAILFAST"
PERMISSIVE: Final = "PERMISSIVE"
MISSING_JAR: Final = "AVRO_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE"
# The `from_avro` options that `decode_avro` sets through its own parameters.
OWN_PARAMETERS: Final = {"avroschema": "version", "mode": "mode"}
PLACE: Final = ("topic", "partition", "offset")
MAX_SHOWN_IDS: Final = 20  # maximum number of schema ids listed in a message


class SparkAvroMissing(RuntimeError):
    """The session does not have the `spark-avro` package."""


def decode_avro(
    frame: DataFrame,
    column: str,
    subject: str,
    *,
    into: str | None = None,
    registry: str | None = None,
    user: str | None = None,
    password: str | None = None,
    version: int | None = None,
    mode: str = FAILFAST,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Decodes a binary column with the Avro schemas of a subject and returns the DataFrame with the decoded column.
    Works for both batches and streams.

    The subject's versions are requested once, when this function is called. Null values remain null.

    frame           the DataFrame with the column
    column          the name of the binary column, such as `value`
    subject         the subject whose schemas the producers used
    into            the name of the decoded column; default: `column`, which is then replaced
    registry        the URL of the registry; default: the environment variable ODRADEK_SCHEMA_REGISTRY, or
                    http://localhost:8081
    user, password  the credentials for the registry, if it needs any
    version         the version of the reader schema, which determines the type of the decoded column; default: the
                    latest
    mode            FAILFAST: the query fails if a value cannot be decoded. PERMISSIVE: such a value becomes null. In
                    both modes, the query fails if a value names a schema that the subject did not have when
                    `decode_avro` was called.
    options         other options of Spark's `from_avro`

    Raises OptionError, SubjectError or SparkAvroMissing.
    """
    options = dict(options or {})
    mode = mode.upper()
    _require_valid(frame, column, mode, options)
    try:
        address = registry_address(registry or os.environ.get(VARIABLE) or DEFAULT_URL, user, password)
    except ValueError as error:
        raise OptionError(str(error)) from None
    found = read_subject(SchemaRegistryClient(address), subject, version)
    try:
        decoded = frame.withColumn(into or column, _decoded(frame, column, found, mode, options))
        _ = decoded.schema  # With Spark Connect, this call has the server analyse the expression.
    except PySparkException as error:
        if error.getCondition() == MISSING_JAR:
            package = f"org.apache.spark:spark-avro_2.13:{frame.sparkSession.version}"
            raise SparkAvroMissing(
                f"from_avro needs the package spark-avro: start the program with `spark-submit --packages {package}`,"
                f" or build the session with .config('spark.jars.packages', '{package}')"
            ) from error
        raise SubjectError(f"Spark cannot decode the subject {subject}: {error}") from error
    except Py4JError as error:
        raise SubjectError(f"Spark cannot decode the subject {subject}: {error}") from error
    return decoded


def schema_id(column: str) -> Column:
    """Returns an expression for the id of the schema that each value of a binary column was written with. The id is
    null if the value is null or does not begin with a zero byte and an id."""
    value = _column(column)
    found = functions.conv(functions.hex(functions.substring(value, 2, HEADER.size - 1)), 16, 10).cast("bigint")
    is_id = (
        (functions.octet_length(value) >= HEADER.size)
        & (functions.substring(value, 1, 1) == functions.lit(bytes([MAGIC])))
        & found.between(1, LAST_ID)
    )
    return functions.when(is_id, found.cast("int"))


def _column(name: str) -> Column:
    return functions.col(f"`{name.replace('`', '``')}`")


def _require_valid(frame: DataFrame, column: str, mode: str, options: Mapping[str, str]) -> None:
    """Raises OptionError if an argument of `decode_avro` is invalid."""
    types = {field.name: field.dataType for field in frame.schema.fields}
    if column not in types:
        raise OptionError(f"no such column: {column}; the columns are {', '.join(types)}")
    if not isinstance(types[column], BinaryType):
        raise OptionError(f"the column {column} is {types[column].simpleString()}, not binary")
    if mode not in (FAILFAST, PERMISSIVE):
        raise OptionError(f"mode must be {FAILFAST} or {PERMISSIVE}, not {mode!r}")
    for name in options:
        if name.lower() in OWN_PARAMETERS:
            raise OptionError(f"instead of the option {name}, use the parameter {OWN_PARAMETERS[name.lower()]}")


def _decoded(frame: DataFrame, column: str, subject: AvroSubject, mode: str, options: Mapping[str, str]) -> Column:
    value = _column(column)
    header = functions.substring(value, 1, HEADER.size)
    # Without a length, `substring` returns everything from the given position on.
    payload = functions.expr(f"substring(`{column.replace('`', '``')}`, {HEADER.size + 1})")
    settings = {**options, "mode": mode, "avroSchema": subject.reader}
    cases = [
        (header == functions.lit(HEADER.pack(MAGIC, each)), from_avro(payload, schema, settings).getField(FIELD))
        for each, schema in sorted(subject.writers.items(), reverse=True)  # newest first: most records have this id
    ]
    cases.append((schema_id(column).isNotNull(), _unknown_id(frame, column, subject)))
    if mode == FAILFAST:
        cases.append((value.isNotNull(), _foreign(frame, column)))
    (condition, result), *others = cases
    return reduce(lambda chain, case: chain.when(*case), others, functions.when(condition, result))


def _unknown_id(frame: DataFrame, column: str, subject: AvroSubject) -> Column:
    """Returns an expression that makes the query fail, with the reason that the subject had no schema with the value's
    id."""
    known = sorted(subject.writers)
    shown = ", ".join(map(str, known[-MAX_SHOWN_IDS:]))
    ids, argument, meaning = shown, shown, ""
    if len(known) > MAX_SHOWN_IDS:
        ids, argument, meaning = f"…, {shown}", "*IDS", ", where IDS are the schema ids of one subject"
    return functions.raise_error(
        functions.concat(
            *_described(frame, column),
            functions.lit(" was written with the schema id "),
            schema_id(column).cast("string"),
            functions.lit(
                f", which the subject {subject.name} did not have when the query was planned (it had {ids})."
                " If a producer has registered a new version since then, start the query again: it requests the"
                " versions again, and a stream continues from its checkpoint. If the topic has records of several"
                " subjects, decode those of each subject separately:"
                f' frame.where(schema_id("{column}").isin({argument})){meaning}'
            ),
        )
    )


def _foreign(frame: DataFrame, column: str) -> Column:
    """Returns an expression that makes the query fail, with the reason that the value names no schema."""
    return functions.raise_error(
        functions.concat(
            *_described(frame, column),
            functions.lit(" does not begin with a zero byte and a schema id, but with the bytes "),
            functions.hex(functions.substring(_column(column), 1, HEADER.size)),
            functions.lit(
                ", so it was not written by a serializer that uses a registry. With mode='PERMISSIVE', such values"
                " become null."
            ),
        )
    )


def _described(frame: DataFrame, column: str) -> list[Column]:
    """Returns expressions that together name the column. If the DataFrame has a source's columns, they also identify
    the record."""
    if not set(PLACE) <= set(frame.columns):
        return [functions.lit(f"a value of the column {column}")]
    topic, partition, offset = (_column(name).cast("string") for name in PLACE)
    return [
        functions.lit(f"the {column} of the record at offset "),
        offset,
        functions.lit(" of "),
        topic,
        functions.lit("-"),
        partition,
    ]
