"""Checks whether each record of an input was written to an output exactly once, by comparing input and output as
multisets.

Records with equal `on` columns are treated as one value, which must occur the same number of times in the output as in
the input.

| in the input | in the output | verdict |
|---|---|---|
| n | m < n | lost, n - m times |
| n > 0 | m > n | repeated, m - n times |
| 0 | m > 0 | invented, m times |

Spark shuffles only the `on` columns and each record's place, and spills to disk if the data does not fit into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from odradek.spark.jobs.shown import RecordPlace, shown

On: TypeAlias = "str | Column | Sequence[str | Column]"

LOST, REPEATED, INVENTED = "lost", "repeated", "invented"
VERDICTS = (LOST, REPEATED, INVENTED)
EXAMPLES = 5
_RANKS = ("first_input", "first_output", "last_output")
_OFFSET_BITS = 48  # a rank's lower bits, which hold the offset; the upper bits hold the partition


@dataclass(frozen=True, slots=True)
class Example:
    """A value that occurs more often or less often in the output than in the input. A place is None if the rows have no
    `partition` and `offset` columns."""

    verdict: str
    value: dict[str, str | None]
    input_count: int
    output_count: int
    first_input: RecordPlace | None
    first_output: RecordPlace | None
    last_output: RecordPlace | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison. `lost`, `repeated` and `invented` count records."""

    input_rows: int
    output_rows: int
    lost: int
    repeated: int
    invented: int
    examples: list[Example] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.repeated or self.invented)

    def __str__(self) -> str:
        return (
            f"{self.input_rows:,} in, {self.output_rows:,} out, "
            f"{self.lost:,} lost, {self.repeated:,} twice, {self.invented:,} invented"
        )


def exactly_once(input_df: DataFrame, output_df: DataFrame, on: On, *, output_on: On | None = None) -> DataFrame:
    """Returns a row for each value whose number of occurrences differs between input and output. If there are no rows,
    every record was written exactly once.

    on         columns or SQL expressions that identify an input record in the output
    output_on  the corresponding columns of the output if they differ. Their number and types must be those of `on`.

    The result has the `on` columns, verdict, input_count, output_count, and the places (partition, offset) of the first
    and last records: first_input, first_output and last_output. A place is null if the rows have no `partition` and
    `offset` columns.
    """
    counted, names = _counted(input_df, output_df, on, output_on)
    different = _with_places(_judged(counted).where("verdict is not null"))
    return different.select(*names, "verdict", "input_count", "output_count", *_RANKS)


def compare(
    input_df: DataFrame, output_df: DataFrame, on: On, *, output_on: On | None = None, examples: int = EXAMPLES
) -> Comparison:
    """Compares an output with its input, like `exactly_once`, and returns the counts and up to `examples` examples of
    each verdict. Spark runs the comparison only once."""
    counted, names = _counted(input_df, output_df, on, output_on)
    judged = _judged(counted)
    # If a value's counts do not differ, its columns become null, which merges all these values into one row. The other
    # values are stored for the examples.
    of_the_different = [F.when(F.col("verdict").isNotNull(), F.col(name)).alias(name) for name in (*names, *_RANKS)]
    summed = (
        judged.select("verdict", *of_the_different, "input_count", "output_count")
        .groupBy("verdict", *names, *_RANKS)
        .agg(F.sum("input_count").alias("input_count"), F.sum("output_count").alias("output_count"))
        .persist(StorageLevel.DISK_ONLY)
    )
    try:
        missing = F.abs(F.col("input_count") - F.col("output_count"))
        totals = {
            row["verdict"]: row
            for row in summed.groupBy("verdict")
            .agg(
                F.sum("input_count").alias("rows_in"),
                F.sum("output_count").alias("rows_out"),
                F.sum(missing).alias("n"),
            )
            .collect()
        }
        found = [
            _example(row.asDict(), names)
            for verdict in VERDICTS
            if verdict in totals
            for row in _with_places(summed).where(F.col("verdict") == verdict).limit(examples).collect()
        ]
    finally:
        summed.unpersist()
    records = {verdict: row["n"] for verdict, row in totals.items()}
    return Comparison(
        input_rows=sum(row["rows_in"] for row in totals.values()),
        output_rows=sum(row["rows_out"] for row in totals.values()),
        lost=records.get(LOST, 0),
        repeated=records.get(REPEATED, 0),
        invented=records.get(INVENTED, 0),
        examples=found,
    )


def _counted(input_df: DataFrame, output_df: DataFrame, on: On, output_on: On | None) -> tuple[DataFrame, list[str]]:
    """Returns one row per value, with its counts and the ranks of its places. Also returns the names of the value's
    columns."""
    expressions, expressions_there = _expressions(on), _expressions(on if output_on is None else output_on)
    if len(expressions) != len(expressions_there):
        raise ValueError(
            f"{len(expressions)} columns are given for the input, but {len(expressions_there)} for the output"
        )
    ours, theirs = input_df.select(*expressions), output_df.select(*expressions_there)
    names = _free_names(ours.columns)
    for name, one, other in zip(names, ours.schema, theirs.schema, strict=True):
        if one.dataType != other.dataType:
            raise ValueError(
                f"{name} is {one.dataType.simpleString()} in the input but {other.dataType.simpleString()} in the"
                " output: cast one of them"
            )
    sides = (
        _side(input_df, expressions, names, is_input=True),
        _side(output_df, expressions_there, names, is_input=False),
    )
    is_input, rank = F.col("__input"), F.col("__rank")
    counted = (
        sides[0]
        .unionAll(sides[1])
        .groupBy(*names)
        .agg(
            F.sum(is_input.cast("long")).alias("input_count"),
            F.sum((~is_input).cast("long")).alias("output_count"),
            F.min(F.when(is_input, rank)).alias("first_input"),
            F.min(F.when(~is_input, rank)).alias("first_output"),
            F.max(F.when(~is_input, rank)).alias("last_output"),
        )
    )
    return counted, names


def _judged(counted: DataFrame) -> DataFrame:
    """Adds a column `verdict`, which is null if there is no difference."""
    lost = F.when(F.col("output_count") < F.col("input_count"), LOST)
    invented = lost.when((F.col("input_count") == 0) & (F.col("output_count") > 0), INVENTED)
    return counted.withColumn("verdict", invented.when(F.col("output_count") > F.col("input_count"), REPEATED))


def _with_places(judged: DataFrame) -> DataFrame:
    """Converts the columns that contain ranks to places."""
    places = {
        name: F.when(
            F.col(name).isNotNull(),
            F.struct(
                F.shiftright(name, _OFFSET_BITS).cast("int").alias("partition"),
                F.col(name).bitwiseAND(F.lit((1 << _OFFSET_BITS) - 1)).alias("offset"),
            ),
        )
        for name in _RANKS
    }
    return judged.withColumns(places)


def _side(frame: DataFrame, expressions: list[Column], names: list[str], *, is_input: bool) -> DataFrame:
    """Selects the columns to compare, the side, and the place as a single number, which Spark can aggregate without
    sorting."""
    has_place = {"partition", "offset"} <= set(frame.columns)
    place = F.shiftleft(F.col("partition").cast("long"), _OFFSET_BITS).bitwiseOR(F.col("offset"))
    rank = place if has_place else F.lit(None).cast("long")
    columns = [column.alias(name) for column, name in zip(expressions, names, strict=True)]
    return frame.select(*columns, F.lit(is_input).alias("__input"), rank.alias("__rank"))


def _expressions(on: On) -> list[Column]:
    several = [on] if isinstance(on, str) or not isinstance(on, Sequence) else list(on)
    if not several:
        raise ValueError("give at least one column to compare")
    return [F.expr(each) if isinstance(each, str) else each for each in several]


def _free_names(names: list[str]) -> list[str]:
    """Makes column names unique and different from the result's other column names."""
    used_names = {"verdict", "input_count", "output_count", *_RANKS}
    found: list[str] = []
    for name in names:
        while name in used_names or name in found:
            name = f"{name}_"
        found.append(name.replace("`", "'").replace(".", "_"))
    return found


def _example(row: dict[str, object], names: list[str]) -> Example:
    return Example(
        str(row["verdict"]),
        {name: shown(row[name]) for name in names},
        int(str(row["input_count"])),
        int(str(row["output_count"])),
        *(RecordPlace.of(row[name]) for name in _RANKS),
    )
