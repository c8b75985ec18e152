"""Enums for authorization. Their values are Kafka's numbers in ACL requests, `authorized_operations` and ACL
records."""

from enum import Enum
from typing import Final


class Operation(Enum):
    __hash__ = object.__hash__  # Enum's own hash is slow, and every request looks up decisions by these values

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(Enum):
    __hash__ = object.__hash__  # faster, as in Operation

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(Enum):
    UNKNOWN = 0
    ANY = 1  # used only in filters
    MATCH = 2  # used only in filters: matches all patterns that apply to the name
    LITERAL = 3
    PREFIXED = 4


class Permission(Enum):
    UNKNOWN = 0
    ANY = 1  # used only in filters
    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"  # the only name that a CLUSTER resource can have
ANY_NAME: Final = "*"  # the name in a literal ACL that applies to every resource of its type
ANY_PRINCIPAL: Final = "User:*"
ANY_HOST: Final = "*"
