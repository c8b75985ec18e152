"""`odradek.client.Admin` without `await`."""

from __future__ import annotations

from collections.abc import Callable

from odradek.client import admin
from odradek.client.sync.background import Blocking, blocking, with_parameters_of


class Admin(Blocking[admin.Admin]):
    """Administers topics, settings, groups and transactions in programs without an event loop. `odradek.client.Admin`
    describes the settings.

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("orders", partitions=3)])
            for name in admin.list_topics():
                ...

    An admin client must be started before use and closed afterwards, preferably with `with`. Each call retries
    transient errors for up to `default_api_timeout_ms`, then raises RetriableError. An error that a broker reports is
    raised as ClientError, with the broker's error code in `code`.
    """

    @with_parameters_of(admin.Admin)
    def __init__(self, make: Callable[[], admin.Admin]) -> None:
        super().__init__(make)

    start = blocking(admin.Admin.start)
    close = blocking(admin.Admin.close)
    create_topics = blocking(admin.Admin.create_topics)
    delete_topics = blocking(admin.Admin.delete_topics)
    list_topics = blocking(admin.Admin.list_topics)
    describe_topics = blocking(admin.Admin.describe_topics)
    create_partitions = blocking(admin.Admin.create_partitions)
    describe_configs = blocking(admin.Admin.describe_configs)
    alter_configs = blocking(admin.Admin.alter_configs)
    list_groups = blocking(admin.Admin.list_groups)
    describe_group = blocking(admin.Admin.describe_group)
    describe_share_group = blocking(admin.Admin.describe_share_group)
    describe_streams_group = blocking(admin.Admin.describe_streams_group)
    delete_groups = blocking(admin.Admin.delete_groups)
    list_group_offsets = blocking(admin.Admin.list_group_offsets)
    alter_group_offsets = blocking(admin.Admin.alter_group_offsets)
    delete_group_offsets = blocking(admin.Admin.delete_group_offsets)
    list_share_group_offsets = blocking(admin.Admin.list_share_group_offsets)
    alter_share_group_offsets = blocking(admin.Admin.alter_share_group_offsets)
    delete_share_group_offsets = blocking(admin.Admin.delete_share_group_offsets)
    list_offsets = blocking(admin.Admin.list_offsets)
    delete_records = blocking(admin.Admin.delete_records)
    log_sizes = blocking(admin.Admin.log_sizes)
    describe_cluster = blocking(admin.Admin.describe_cluster)
    describe_features = blocking(admin.Admin.describe_features)
    update_features = blocking(admin.Admin.update_features)
    list_transactions = blocking(admin.Admin.list_transactions)
    describe_transactions = blocking(admin.Admin.describe_transactions)
    force_terminate_transaction = blocking(admin.Admin.force_terminate_transaction)
    fence_producers = blocking(admin.Admin.fence_producers)
    describe_producers = blocking(admin.Admin.describe_producers)
    abort_transaction = blocking(admin.Admin.abort_transaction)
    end_transaction = blocking(admin.Admin.end_transaction)
    end_transactions = blocking(admin.Admin.end_transactions)
