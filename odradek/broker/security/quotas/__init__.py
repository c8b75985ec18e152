"""Client quotas: how they are configured, which quota applies to a client, and how long clients are throttled."""
