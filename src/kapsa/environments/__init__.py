"""The environments operator: an isolated environment for every branch and pull request (projects, previews, domains, registries) will live here."""
