"""The handler of each API. It is imported at the first request for its API, so that starting up does not pay for it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from odradek.broker.api.served import SERVED
from odradek.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from odradek.broker.api.dispatch import Dispatcher, FastPath, HandlerCall, Route
    from odradek.broker.handlers.handler_broker import HandlerBroker


def fast_path_of(route: Route[HandlerBroker], dispatcher: Dispatcher[HandlerBroker]) -> FastPath | None:
    """Finds the quicker way for ordinary requests of this API and version, if there is one."""
    if route.api_key is not ApiKey.PRODUCE:
        return None
    from odradek.broker.produce.fast_path import fast_path

    return fast_path(route, dispatcher.broker, dispatcher.now_ms, dispatcher.authorizer)


def handler_of(api_key: ApiKey) -> HandlerCall[HandlerBroker]:
    """Finds a handler by name: in the module that its row of SERVED names, the function with the API's name.

    Raises KeyError for an API that is not served.
    """
    module = import_module(f"odradek.broker.handlers.{SERVED[api_key].module}")
    handler: HandlerCall[HandlerBroker] = getattr(module, api_key.name.lower())
    return handler
