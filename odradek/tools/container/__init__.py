"""The parts of the container image: its entry point, its environment, and its health check. See docs/docker.md."""
