"""Handlers for the cluster: versions, features, brokers and replicas."""
