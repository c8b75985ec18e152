"""Builds each API's response to a request that failed as a whole, with the error code in the same places as in Kafka.

These places are derived from the schemas. A response has the code either at its top level, or in each element of an
array that corresponds to an array of the request. The elements of the response repeat the names of the request's
elements. The exceptions are listed in the tables of `odradek.protocol.api_facts` and at the end of this file. The
result mirrors the observed results of `getErrorResponse` in Kafka 4.3.1's request classes. Errors of individual
partitions or groups are not built here; they are part of a handler's response.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from odradek.broker.api.context import RequestContext
from odradek.broker.api.error_translations import translate
from odradek.protocol.api_facts import facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import request_class, response_class
from odradek.protocol.schema import Field, Schema, load
from odradek.protocol.struct import Message, Struct

MESSAGES = "odradek.protocol.messages."
ERROR_CODES = frozenset({"error_code", "partition_error_code"})
# Fields that identify an element. A response repeats their values. If the request's elements are plain names or
# numbers, the response repeats each name or number in the first of these fields.
NUMBERS = frozenset({"index", "partition", "partition_index", "partition_id"})
NAMES = frozenset({"name", "topic", "topic_id", "group_id", "key", "transactional_id", "producer_id", "session_id"})
IDENTITIES = NAMES | NUMBERS | {"resource_type", "resource_name", "entity_type", "entity_name"}


def error_answer(error: Exception, request: Message, context: RequestContext) -> Message:
    """Returns the response to a request that failed as a whole."""
    message = error.message if isinstance(error, KafkaError) else None
    return error_reply(context.api_key, context.api_version, request, code_of(error, context), message)


def code_of(error: Exception, context: RequestContext) -> ErrorCode:
    """Returns the error code to send for an exception in this version of the API."""
    if not isinstance(error, KafkaError):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return translate(context.api_key, error.code, context.api_version)


def error_reply(api_key: ApiKey, version: int, request: Message, code: ErrorCode, message: str | None) -> Message:
    """Builds a response with `code` for the whole request, and with `message` if the API has a field for it."""
    match api_key:  # APIs whose response elements differ from the request's elements
        case ApiKey.ALTER_REPLICA_LOG_DIRS:
            return _alter_replica_log_dirs(request, code.value)
        case ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            return _alter_user_scram_credentials(request, code.value, message)
        case ApiKey.DESCRIBE_LOG_DIRS:
            return _describe_log_dirs(code.value)
    response = _reply_for(api_key, version).build(request, code.value, message)
    assert isinstance(response, Message)
    return response


def partition_errors(api_key: ApiKey, version: int, request: Message, code: ErrorCode) -> Message:
    """Builds a response with `code` for each partition in the request, even if the API has a field for an error that
    applies to the whole request."""
    response = _reply_for(api_key, version, fills_nested=True).build(request, code.value, None)
    assert isinstance(response, Message)
    return response


@cache
def answers_partitions(api_key: ApiKey, version: int) -> bool:
    """Returns whether the response has an error code for each partition."""
    arrays = _reply_for(api_key, version, fills_nested=True).arrays
    return any(NUMBERS.intersection(below.struct.__slots__) for *_, topics in arrays for *_, below in topics.arrays)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The fields that an error reply sets in one struct of a response, at one version."""

    struct: type[Struct]
    codes: list[str]
    messages: list[str]
    constants: list[tuple[str, object]]
    # Tuples of a field, the field of the request's element that it repeats (None for the element itself), and the value
    # that replaces null.
    names: list[tuple[str, str | None, object]]
    # Tuples of a field, the corresponding array of the request, and the fields of each element.
    arrays: list[tuple[str, str, "_Answer"]]

    def build(self, requested: Any, code: int, message: str | None) -> Struct:
        made = self.struct()
        for name in self.codes:
            setattr(made, name, code)
        for name in self.messages:
            setattr(made, name, message)
        for name, constant in self.constants:
            setattr(made, name, constant)
        for name, source, null in self.names:
            value = requested if source is None else getattr(requested, source)
            setattr(made, name, null if value is None else value)
        for name, source, part in self.arrays:
            setattr(made, name, [part.build(each, code, message) for each in getattr(requested, source) or ()])
        return made


@cache
def _reply_for(api_key: ApiKey, version: int, *, fills_nested: bool = False) -> _Answer:
    requests, responses = (load(each(api_key.value).__module__.rpartition(".")[2]) for each in CLASSES)
    derivation = _Derivation(requests, responses, version, facts_of(api_key).absent_values)
    fills_nested = fills_nested or version <= facts_of(api_key).code_repeated_to
    return derivation.part(responses.name, responses.fields, requests.fields, fills_nested=fills_nested)


CLASSES = (request_class, response_class)


@dataclass(frozen=True, slots=True)
class _Derivation:
    requests: Schema
    responses: Schema
    version: int
    none_of: Mapping[str, object]

    def part(
        self, struct: str, fields: tuple[Field, ...], request_fields: tuple[Field, ...], *, fills_nested: bool = False
    ) -> _Answer:
        """Derives one struct of the response from the corresponding struct of the request. `request_fields` is empty if
        the request has plain names or numbers.

        If a struct has its own error code and `fills_nested` is false, its nested structs are not filled in.
        """
        part = _Answer(getattr(import_module(MESSAGES + self.responses.module), struct), [], [], [], [], [])
        fields = tuple(field for field in fields if self.version in field.versions)
        requested = {field.attribute: field for field in request_fields if self.version in field.versions}
        fills_nested = fills_nested or not any(field.attribute in ERROR_CODES for field in fields)
        array = next((each for each in requested.values() if each.is_array), None)
        for field in fields:
            name = field.attribute
            null = "" if field.type == "string" and self.version not in field.nullable else None
            if name in ERROR_CODES:
                part.codes.append(name)
            elif name == "error_message":
                part.messages.append(name)
            elif name in self.none_of:
                none = self.none_of[name]
                part.constants.append((name, null if none is None else none))
            elif name in IDENTITIES:
                if not requested and not part.names:
                    part.names.append((name, None, null))
                same = [each for each in requested if each == name or (name in NUMBERS and each in NUMBERS)]
                part.names.extend((name, each, null) for each in same)
            elif field.is_array and field.is_struct and array is not None and self._answers(field, array, fills_nested):
                below, request_below = self.responses.structs[field.type], self.requests.structs.get(array.type, ())
                part.arrays.append((name, array.attribute, self.part(field.type, below, request_below)))
        return part

    def _answers(self, field: Field, array: Field, fills_nested: bool) -> bool:
        """Returns whether the elements of `field` correspond to the elements of `array` in the request, because they
        have a code or repeat names."""
        below = self.responses.structs[field.type]
        names = field.attribute == array.attribute and all(each.attribute in IDENTITIES for each in below)
        return names or (fills_nested and self._has_code(below))

    def _has_code(self, fields: tuple[Field, ...]) -> bool:
        return any(
            field.attribute in ERROR_CODES or self._has_code(self.responses.structs.get(field.type, ()))
            for field in fields
        )


def _alter_replica_log_dirs(request: Any, code: int) -> Message:
    """Builds the response to AlterReplicaLogDirs. The request groups topics by directory, but the response does not."""
    from odradek.protocol.messages.alter_replica_log_dirs_response import (
        AlterReplicaLogDirPartitionResult,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirTopicResult,
    )

    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for each in request.dirs
            for topic in each.topics
        ]
    )


def _alter_user_scram_credentials(request: Any, code: int, message: str | None) -> Message:
    """Builds the response to AlterUserScramCredentials, which lists each user once, even if the request has several
    changes for the user."""
    from odradek.protocol.messages.alter_user_scram_credentials_response import (
        AlterUserScramCredentialsResponse,
        AlterUserScramCredentialsResult,
    )

    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message) for user in users]
    )


def _describe_log_dirs(code: int) -> Message:
    """Builds the response to DescribeLogDirs. Before version 3, the response is empty, because its elements are
    directories, not the request's topics."""
    from odradek.protocol.messages.describe_log_dirs_response import DescribeLogDirsResponse

    return DescribeLogDirsResponse(error_code=code)
