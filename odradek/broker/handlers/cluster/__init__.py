"""The handlers of the cluster: versions, features, brokers, replicas."""
