"""Programs that Kapsa calls: where to find them, and how to run them within limits."""
