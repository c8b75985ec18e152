"""A client of schema registries that have Confluent's HTTP interface."""
