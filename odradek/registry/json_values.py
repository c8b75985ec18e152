"""Converts values of JSON Schemas, which are stored as JSON. A value is validated before it is written."""

from __future__ import annotations

import json
from typing import Final

import jsonschema.exceptions
import jsonschema.validators
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from odradek.registry.json_schemas import JsonSchema
from odradek.registry.schemas import Json
from odradek.registry.values import DecodingBudget, DoesNotFitSchema

ON_ONE_LINE: Final = str.maketrans("\r\n", "  ")  # line breaks in JSON occur between tokens, never inside a string


def decode(payload: bytes, _schema: JsonSchema, budget: DecodingBudget) -> str:
    """Returns the payload's JSON text, unchanged except that it is on one line. Raises DoesNotFitSchema or
    TooMuchToDecode.

    The value is not validated against the schema. Confluent's deserializers do not validate values by default either.
    """
    try:
        text = payload.decode(json.detect_encoding(payload))
        budget.take_characters(len(text))
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse_constant)
    except ValueError as error:
        raise DoesNotFitSchema(f"it is not JSON: {error}") from error
    return text.strip().translate(ON_ONE_LINE)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def encode(value: Json, schema: JsonSchema) -> bytes:
    """Returns the bytes of a value. Raises DoesNotFitSchema with a message that gives the place in the value."""
    kind = jsonschema.validators.validator_for(schema.document, default=jsonschema.validators.Draft7Validator)
    # Because the validator has a registry of the referenced documents, it never fetches a `$ref` over the network.
    known: Registry[Json] = Registry().with_resources(
        (name, Resource.from_contents(document, default_specification=DRAFT7))
        for name, document in schema.documents.items()
    )
    try:
        error = jsonschema.exceptions.best_match(kind(schema.document, registry=known).iter_errors(value))
    except Unresolvable as missing:
        raise DoesNotFitSchema(f"its schema refers to {missing.ref}, which is not one of its references") from missing
    if error is not None:
        raise DoesNotFitSchema(f"{error.json_path}: {error.message}")
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as unfit:
        raise DoesNotFitSchema(f"JSON supports neither NaN nor infinite numbers: {unfit}") from unfit
    return text.encode()
