"""The real engine: the control plane's processes, how they are built, started and supervised."""
