#!/bin/sh
# What health checks and start-up jobs for the apache/kafka image call; done by a command of odradek.
exec /opt/odradek/bin/python -m odradek.tools.container.kafka_tools kafka-broker-api-versions "$@"
