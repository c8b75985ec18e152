"""What only the container image needs: its entry point, its environment, its health check. See docs/docker.md."""
