"""Looks up the handler of each API. To keep startup fast, a handler is imported when the first request for its API
arrives."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from odradek.broker.api.served import SERVED
from odradek.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from odradek.broker.api.dispatch import Dispatcher, FastPath, HandlerCall, Route
    from odradek.broker.handlers.handler_broker import HandlerBroker


def fast_path_of(route: Route[HandlerBroker], dispatcher: Dispatcher[HandlerBroker]) -> FastPath | None:
    """Returns the fast path for ordinary requests of this API and version, or None if there is none."""
    if route.api_key is not ApiKey.PRODUCE:
        return None
    from odradek.broker.produce.fast_path import fast_path

    return fast_path(route, dispatcher.broker, dispatcher.now_ms, dispatcher.authorizer)


def handler_of(api_key: ApiKey) -> HandlerCall[HandlerBroker]:
    """Returns an API's handler: the function with the API's name in the module that SERVED lists for the API.

    Raises KeyError if the API is not supported.
    """
    module = import_module(f"odradek.broker.handlers.{SERVED[api_key].module}")
    handler: HandlerCall[HandlerBroker] = getattr(module, api_key.name.lower())
    return handler
