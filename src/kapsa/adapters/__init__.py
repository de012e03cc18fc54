"""The outside world behind ports: git, image registries, HTTP, programs, and manifests nobody vouches for."""
