"""The shells around the coordinator cores: logs, timers, markers and producer ids."""
