"""Converts values of JSON Schemas, which are stored as JSON. A value is validated before it is written."""

from __future__ import annotations

import json

import jsonschema.exceptions
import jsonschema.validators
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from odradek.registry.json_schemas import JsonSchema
from odradek.registry.schemas import Json
from odradek.registry.values import DoesNotFitSchema


def decode(payload: bytes, _schema: JsonSchema) -> Json:
    """Returns the JSON. Like Confluent's deserializers by default, it does not validate values that others have
    written."""
    try:
        return json.loads(payload)
    except ValueError as error:
        raise DoesNotFitSchema(f"it is no JSON: {error}") from error


def encode(value: Json, schema: JsonSchema) -> bytes:
    """Returns the bytes of a value. Raises DoesNotFitSchema, whose message names the place in the value."""
    kind = jsonschema.validators.validator_for(schema.document, default=jsonschema.validators.Draft7Validator)
    # With a registry of the referenced documents, the validator never requests a `$ref` from the network.
    known: Registry[Json] = Registry().with_resources(
        (name, Resource.from_contents(document, default_specification=DRAFT7))
        for name, document in schema.documents.items()
    )
    try:
        error = jsonschema.exceptions.best_match(kind(schema.document, registry=known).iter_errors(value))
    except Unresolvable as missing:
        raise DoesNotFitSchema(f"its schema refers to {missing.ref}, which is no reference of the schema") from missing
    if error is not None:
        raise DoesNotFitSchema(f"{error.json_path}: {error.message}")
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as unfit:
        raise DoesNotFitSchema(f"JSON has no NaN and no infinite numbers: {unfit}") from unfit
    return text.encode()
