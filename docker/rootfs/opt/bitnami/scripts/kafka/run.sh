#!/bin/sh
# Starts the broker, under a name that bitnami/kafka has for this.
exec /opt/odradek/bin/python -m odradek.tools.container
