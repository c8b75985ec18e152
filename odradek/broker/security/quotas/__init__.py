"""Client quotas: their configuration, the choice of the quota that applies to a client, and the throttle time."""
