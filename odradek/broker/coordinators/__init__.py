"""The coordinators of groups, share groups and transactions, with their logs, timers, markers and producer ids. The
decisions are made by cores in the packages `groups`, `shares` and `transactions`."""
