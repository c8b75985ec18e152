"""A small client for commands of people: blocking, one request at a time, of any broker that speaks Kafka."""
