"""A small client for commands that people type: blocking, one request at a time, for any broker that speaks Kafka."""
