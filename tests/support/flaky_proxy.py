"""A TCP proxy that loses, repeats and delays requests, loses responses, and closes connections, to test retries."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

Rule = Callable[[int, int, int], bool]
"""Decides whether to disturb a request, from its API key, its version, and the number of earlier requests with that key
over all connections."""


def _nothing(_api_key: int, _api_version: int, _seen: int) -> bool:
    return False


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size > 0:
        part = connection.recv(min(size, 1 << 18))
        if not part:
            raise ConnectionError("closed")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _read_frame(connection: socket.socket) -> bytes:
    head = _read_exactly(connection, 4)
    return head + _read_exactly(connection, int.from_bytes(head))


def _read_to_the_end(connection: socket.socket) -> None:
    while connection.recv(1 << 18):
        pass


class FlakyProxy:
    """Forwards complete frames to `target` and disturbs some of them. The following attributes determine which requests
    are disturbed, and how.

    loses     delivers the request, discards the response and closes the connection, so that the client cannot know the
              outcome
    drops     closes the connection before the request is delivered
    repeats   delivers the request twice, and the client receives the second response
    doubles   delivers the response twice; the client cannot match the second one to a request, and closes the
              connection
    holds     delivers the request `late_by_s` later over another connection; the client gets no response to this
              request or to later ones on its connection
    hangs_up  with `holds`: closes the client's connection immediately, so that the client's retry arrives before the
              held request

    Clients must see this proxy as the broker's address, so pass `advertised.listeners` with `proxy.port` to the broker.
    The port is available before the broker starts.
    """

    def __init__(self, loses: Rule | None = None) -> None:
        self.loses: Rule = loses or _nothing
        self.drops: Rule = _nothing
        self.repeats: Rule = _nothing
        self.doubles: Rule = _nothing
        self.holds: Rule = _nothing
        self.late_by_s = 1.0
        self.hangs_up = False
        self.target: tuple[str, int] | None = None
        self.lost: list[int] = []  # API keys of lost responses
        self.dropped: list[int] = []  # API keys of undelivered requests
        self.repeated: list[int] = []
        self.doubled: list[int] = []  # API keys of responses delivered twice
        self.delivered_late: list[int] = []  # API keys of held requests, delivered late and answered
        self.cuts = 0  # number of connections that `cut_all` closed
        self._seen: dict[int, int] = {}
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "FlakyProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut_all()

    def request_count(self, api_key: int) -> int:
        """Returns the number of requests with this API key that have arrived since the start or the last `forget`."""
        with self._lock:
            return self._seen.get(api_key, 0)

    def forget(self) -> None:
        """Stops all disturbances and resets the counts."""
        with self._lock:
            self.loses = self.drops = self.repeats = self.doubles = self.holds = _nothing
            self.lost, self.dropped, self.repeated, self.doubled, self.delivered_late = [], [], [], [], []
            self._seen, self.cuts = {}, 0

    def cut_all(self) -> None:
        """Closes every open connection."""
        with self._lock:
            cut, self._open = self._open, set()
            self.cuts += len(cut) // 2
        for connection in cut:
            _close(connection)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if self.target is None:  # the broker is not running yet
            _close(client)
            return
        try:
            broker = socket.create_connection(self.target)
        except OSError:
            _close(client)
            return
        for connection in (client, broker):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open |= {client, broker}
        # Correlation ids whose responses will be lost. Responses arrive in the order of their requests.
        doomed: list[int] = []
        again: list[int] = []
        echoed: dict[int, int] = {}  # API key by correlation id
        threading.Thread(target=self._answers, args=(client, broker, doomed, again, echoed), daemon=True).start()
        try:
            while True:
                frame = _read_frame(client)
                key, version = int.from_bytes(frame[4:6]), int.from_bytes(frame[6:8])
                with self._lock:
                    seen = self._seen.get(key, 0)
                    self._seen[key] = seen + 1
                    if self.loses(key, version, seen):
                        doomed.append(int.from_bytes(frame[8:12]))
                        self.lost.append(key)
                    is_dropped, is_repeated = self.drops(key, version, seen), self.repeats(key, version, seen)
                    is_held = self.holds(key, version, seen)
                    if is_dropped:
                        self.dropped.append(key)
                    if self.doubles(key, version, seen):
                        echoed[int.from_bytes(frame[8:12])] = key
                    if is_repeated:
                        again.append(int.from_bytes(frame[8:12]))
                        self.repeated.append(key)
                if is_dropped:
                    break
                if is_held:
                    threading.Timer(self.late_by_s, self._deliver_late, (key, frame)).start()
                    if not self.hangs_up:
                        _read_to_the_end(client)
                    break
                broker.sendall(frame * 2 if is_repeated else frame)
            self._end(client, broker)
        except OSError:
            self._end(client, broker)

    def _deliver_late(self, key: int, frame: bytes) -> None:
        assert self.target is not None
        with suppress(OSError), socket.create_connection(self.target) as broker:
            broker.sendall(frame)
            _read_frame(broker)
            with self._lock:
                self.delivered_late.append(key)

    def _answers(
        self,
        client: socket.socket,
        broker: socket.socket,
        doomed: list[int],
        again: list[int],
        echoed: dict[int, int],
    ) -> None:
        try:
            while True:
                frame = _read_frame(broker)
                correlation_id = int.from_bytes(frame[4:8])
                if correlation_id in doomed:
                    break
                if correlation_id in again:
                    again.remove(correlation_id)
                    continue
                if correlation_id in echoed:
                    client.sendall(frame * 2)
                    with self._lock:
                        self.doubled.append(echoed.pop(correlation_id))
                    continue
                client.sendall(frame)
        except OSError:
            pass
        self._end(client, broker)

    def _end(self, *connections: socket.socket) -> None:
        with self._lock:
            self._open -= set(connections)
        for connection in connections:
            _close(connection)


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads from the connection
    connection.close()
