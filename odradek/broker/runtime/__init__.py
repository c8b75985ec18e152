"""Clocks, threads and deferred answers: the parts that the rest of the broker is built on."""
