#!/bin/sh
# What health checks, init containers and start-up jobs call; done by commands of odradek.
exec /opt/odradek/bin/python -m odradek.tools.container.kafka_tools kafka-console-consumer "$@"
