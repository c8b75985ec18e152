"""The handlers of topics and configs."""
