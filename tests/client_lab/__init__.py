"""The laboratory of client bugs: old and new releases of clients, each run against a cluster in a rare state.

A bug is a row (`row.py`, `rows/`), and the application that shows it is a function of a program (`programs/`), or lines
for the client's driver of `odradek judge --suite` (`Script`, `examples/judge_drivers/`). A tour is a program that uses
a client in ordinary ways while faults happen; `verdicts_page.py` writes down which rules the client kept.

Why are the applications and tours programs, and not lines for one driver of each client? Most bugs are in a place that
no line can name: an interceptor that sends, a handler that blocks beyond the session time-out, an empty transaction, a
counter of requests near its end, sends that do not wait for one another. A verb for each of them would have to be
written in seven drivers for the one client that needs it. The tours could be lines, but they would judge something
else. A driver sets what a scenario needs (metadata that lives a second) and leaves heartbeats at the client's default,
mostly three seconds. A tour keeps the client's age of metadata, and sends heartbeats every half second, without which
the faults on Heartbeat would not all occur while it runs. And three of the ten clients have no driver (Sarama,
@platformatic/kafka, rskafka), so their tours would stay programs.
"""
