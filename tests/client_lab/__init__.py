"""A laboratory for client bugs. It runs old and new releases of clients, each against a cluster in a rare state.

Each bug is a row (`row.py`, `rows/`). The application that shows the bug is a function of a program (`programs/`), or a
list of lines for the client's driver of `odradek judge --suite` (`Script`, `examples/judge_drivers/`). A tour is a
program that uses a client in ordinary ways while faults happen. `verdicts_page.py` writes a page about the rules that
the clients kept and broke.

The applications and tours are programs, rather than lines for one driver per client, for three reasons. First, most
bugs need a situation that no driver line can express: an interceptor that sends, a handler that blocks for longer than
the session timeout, an empty transaction, a request counter close to its limit, or sends that do not wait for one
another. A verb for each of these situations would have to be written in seven drivers, although only one client needs
it.

Second, tours made of lines would test something else. A driver applies the settings that a scenario needs, such as
metadata that expires after a second, and leaves the heartbeat interval at the client's default, usually three seconds.
A tour leaves the client's metadata age at its default and sends a heartbeat every half second; otherwise some of the
faults on Heartbeat would not occur during its run.

Third, three of the ten clients have no driver (Sarama, @platformatic/kafka, rskafka), so their tours would have to
remain programs.
"""
