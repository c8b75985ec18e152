"""The shells around the cores of groups and transactions: their logs, timers, markers and producer ids."""
