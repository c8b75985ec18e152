"""Seeds: the topics, records and other objects that a broker creates before it accepts its first client (docs/seed.md).

No module of this package is imported unless a seed is given.

plan         topics, records, groups, users and ACLs to create, as values
tree         parses a seed in YAML or JSON into a tree with each node's line and field
document     turns the tree into a plan
demo         the seed of `odradek seed --demo`
short_forms  parses `--topic` and `KAFKA_CREATE_TOPICS`
"""
