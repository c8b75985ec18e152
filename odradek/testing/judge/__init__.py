"""Verdicts on Kafka clients: which rule of the protocol a client breaks, and the exchange that proves it.

Recorded exchanges go in, results come out: no clock, file or socket. docs/judge.md is the page for people.
"""
