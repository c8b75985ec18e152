"""Parts of the container image: its entry point, its environment, its health check. See docs/docker.md."""
