"""Regular expressions in the syntax and with the meaning that Kafka gives them."""
