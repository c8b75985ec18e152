"""The coordinators with their logs, timers, markers and producer ids. The packages of the cores contain their
decisions."""
