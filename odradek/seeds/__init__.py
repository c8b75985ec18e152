"""Seeds: the topics, records and other objects that a broker creates before it accepts its first client (docs/seed.md).

No module of this package is imported unless a seed is given.

plan         topics, records, groups, users and ACLs to create, as values
tree         the text of a seed, in YAML or JSON, as a tree whose nodes know their line and their field
document     turns that tree into a plan
demo         the seed of `odradek seed --demo`
short_forms  parses `--topic` and `KAFKA_CREATE_TOPICS`
"""
