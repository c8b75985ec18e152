"""Metrics of the clients, with the names, groups and units of Kafka's Java clients."""
