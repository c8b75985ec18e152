#!/bin/sh
# Starts the broker. The script has the same name as in bitnami/kafka.
exec /opt/odradek/bin/python -m odradek.tools.container
