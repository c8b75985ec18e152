#!/bin/sh
# Health checks, init containers and start-up jobs call this script. Commands of odradek do the work.
exec /opt/odradek/bin/python -m odradek.tools.container.kafka_tools kafka-consumer-groups "$@"
