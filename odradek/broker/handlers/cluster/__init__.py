"""Handlers of the cluster: versions, features, brokers, replicas."""
