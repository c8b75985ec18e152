"""Client quotas: what is configured, which of it applies to a client, and for how long a client has to be throttled."""
