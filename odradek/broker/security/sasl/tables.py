"""The states of a connection on a SASL listener, and how each kind of request is handled in each state.

    INITIAL ──ApiVersions──► HANDSHAKE ──SaslHandshake──► EXCHANGE or RAW ──last token──► COMPLETE
       └──SaslHandshake──────────────────────────────────►┘          COMPLETE ──SaslHandshake──► REPEATED_…

Three rules are not in the table. Frames longer than `sasl.server.max.receive.size` are refused before they are treated
as requests. An ApiVersions request that is refused leaves the state unchanged. After a session has expired, the next
request other than SaslHandshake closes the connection.
"""

from collections.abc import Mapping
from enum import Enum, auto


class State(Enum):
    INITIAL = auto()
    HANDSHAKE = auto()  # after a successful response to ApiVersions
    EXCHANGE = auto()  # after SaslHandshake v1: tokens are sent in SaslAuthenticate
    RAW = auto()  # after SaslHandshake v0: tokens are sent without a header
    COMPLETE = auto()  # authenticated
    REPEATED_EXCHANGE = auto()  # like EXCHANGE, for a connection that has been authenticated before (KIP-368)
    REPEATED_RAW = auto()
    FAILED = auto()  # the connection is closed after its delayed response


class RequestKind(Enum):
    API_VERSIONS = auto()
    SASL_HANDSHAKE = auto()
    SASL_AUTHENTICATE = auto()
    OTHER = auto()  # any other API, in a supported version
    UNREADABLE = auto()


class SaslAction(Enum):
    SERVE = auto()  # handle the request as on any other listener
    BEGIN = auto()  # start the mechanism named in SaslHandshake
    BEGIN_AGAIN = auto()
    JUDGE = auto()  # check the token in SaslAuthenticate
    JUDGE_RAW = auto()  # check the whole frame as a token
    REFUSE = auto()  # respond with ILLEGAL_SASL_STATE, then close the connection
    CLOSE = auto()  # close the connection immediately, without a response


S, K, A = State, RequestKind, SaslAction
KINDS = (K.API_VERSIONS, K.SASL_HANDSHAKE, K.SASL_AUTHENTICATE, K.OTHER, K.UNREADABLE)
# fmt: off
TABLE: Mapping[State, tuple[SaslAction, ...]] = {
    # request:           ApiVersions  SaslHandshake  SaslAuthenticate  other        unreadable
    S.INITIAL:           (A.SERVE,     A.BEGIN,       A.CLOSE,          A.CLOSE,     A.CLOSE),
    S.HANDSHAKE:         (A.CLOSE,     A.BEGIN,       A.CLOSE,          A.CLOSE,     A.CLOSE),
    S.EXCHANGE:          (A.REFUSE,    A.REFUSE,      A.JUDGE,          A.REFUSE,    A.CLOSE),
    S.RAW:               (A.JUDGE_RAW, A.JUDGE_RAW,   A.JUDGE_RAW,      A.JUDGE_RAW, A.JUDGE_RAW),
    S.COMPLETE:          (A.SERVE,     A.BEGIN_AGAIN, A.SERVE,          A.SERVE,     A.SERVE),
    S.REPEATED_EXCHANGE: (A.CLOSE,     A.CLOSE,       A.JUDGE,          A.CLOSE,     A.CLOSE),
    S.REPEATED_RAW:      (A.JUDGE_RAW, A.JUDGE_RAW,   A.JUDGE_RAW,      A.JUDGE_RAW, A.JUDGE_RAW),
    S.FAILED:            (A.CLOSE,     A.CLOSE,       A.CLOSE,          A.CLOSE,     A.CLOSE),
}
# fmt: on
NEXT: Mapping[State, frozenset[State]] = {
    S.INITIAL: frozenset({S.HANDSHAKE, S.EXCHANGE, S.RAW, S.FAILED}),
    S.HANDSHAKE: frozenset({S.EXCHANGE, S.RAW, S.FAILED}),
    S.EXCHANGE: frozenset({S.COMPLETE, S.FAILED}),
    S.RAW: frozenset({S.COMPLETE, S.FAILED}),
    S.COMPLETE: frozenset({S.REPEATED_EXCHANGE, S.REPEATED_RAW, S.FAILED}),
    S.REPEATED_EXCHANGE: frozenset({S.COMPLETE, S.FAILED}),
    S.REPEATED_RAW: frozenset({S.COMPLETE, S.FAILED}),
    S.FAILED: frozenset(),
}


def action_for(state: State, kind: RequestKind) -> SaslAction:
    return TABLE[state][KINDS.index(kind)]
