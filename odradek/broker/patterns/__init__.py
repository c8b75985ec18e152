"""Regular expressions with the syntax and semantics that they have in Kafka."""
