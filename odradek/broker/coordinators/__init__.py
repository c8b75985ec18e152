"""The coordinators with their logs, timers, markers and producer ids. Their decisions are in the packages of the
cores."""
