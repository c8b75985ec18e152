"""Clocks, threads and deferred answers: the parts on which the rest of the broker is built."""
