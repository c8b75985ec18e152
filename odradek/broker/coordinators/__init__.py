"""The coordinators of groups, share groups and transactions, with their logs, timers, markers and producer ids. Their
decisions are made by cores, which are in the packages `groups`, `shares` and `transactions`."""
