"""Brokers for tests of Kafka clients: fresh clusters in milliseconds, faults, holds, and a clock that obeys.

`odradek.testing.sync` is the interface without asyncio; docs/testing.md shows it at work.
"""
