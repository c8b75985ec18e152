"""Regular expressions with the syntax and semantics that Kafka gives them."""
