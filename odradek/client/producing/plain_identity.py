"""The producer id and epoch of an idempotent producer without transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.client.common.errors import ClientError, RetriableError, code_of
from odradek.client.common.values import TopicPartition
from odradek.client.network.cluster import Cluster
from odradek.client.producing.producer_batch import NO_IDENTITY, ProducerIdentity
from odradek.client.producing.verdicts import Verdict, as_exception, verdict
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse

LARGEST_EPOCH = 2**15 - 1
IGNORED_TIMEOUT_MS = 2**31 - 1  # without a transactional id, there is no transaction that could time out


class PlainIdentity:
    """Acquires the identity of a producer without transactions. A producer without idempotence needs no identity.

    A new epoch needs no request: no other producer can have this producer id, so the producer increments the epoch
    itself. When the epochs are used up, it requests a new producer id (KIP-360).
    """

    is_transaction_v2 = False

    def __init__(
        self,
        cluster: Cluster,
        *,
        is_idempotent: bool,
        on_error: Callable[[ClientError], None],
        on_progress: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._on_error = on_error
        self._on_progress = on_progress
        self.identity: ProducerIdentity | None = None if is_idempotent else NO_IDENTITY
        self.error: ClientError | None = None
        self._acquiring: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Requests a producer id if necessary. Batches wait until the id has arrived."""
        if self.identity is None and self._acquiring is None and self.error is None:
            self._acquiring = asyncio.get_running_loop().create_task(self._acquire())

    async def close(self) -> None:
        if self._acquiring is not None:
            self._acquiring.cancel()
            await asyncio.wait([self._acquiring])

    def may_send_to(self, _partition: TopicPartition) -> bool:
        return True

    def on_failure(self, verdict: Verdict, error: ClientError) -> None:
        if verdict is Verdict.FATAL and self.error is None:
            self.error = error
            self._on_error(error)

    def on_lost_sequence(self, _partition: TopicPartition, identity: ProducerIdentity) -> ProducerIdentity | None:
        if self.identity != identity:  # another partition has already bumped the epoch
            return self.identity
        if identity.producer_epoch == LARGEST_EPOCH:
            self.identity = None
            self.start()
        else:
            self.identity = ProducerIdentity(identity.producer_id, identity.producer_epoch + 1)
        return self.identity

    async def _acquire(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=IGNORED_TIMEOUT_MS)
        failures = 0
        try:
            while True:
                try:
                    answer = await self._cluster.ask(request, InitProducerIdResponse)
                except RetriableError:
                    decided = Verdict.RETRY
                except ClientError as error:
                    self.on_failure(Verdict.FATAL, error)
                    return
                else:
                    code = code_of(answer.error_code)
                    decided = verdict(ApiKey.INIT_PRODUCER_ID, code, is_transactional=False)
                    if decided is Verdict.FINE:
                        self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
                        return
                    if decided is not Verdict.RETRY:
                        self.on_failure(decided, as_exception(decided, code, f"no producer id: {code.name}"))
                        return
                failures += 1
                await self._cluster.pause(failures)
        finally:
            self._acquiring = None
            self._on_progress()
