"""Servers on loopback for tests, benchmarks and the demo.

- `git_server`: real repositories behind git's own http-backend.
- `registry_server`: an image registry in memory.
- `chart_server`: a chart repository in memory.
- `vault_server`: the transit engine of Vault, with keys in memory.
- `webhook_receiver`: a receiver of webhooks in memory.
- `loopback_tls`: certificates for servers on loopback.
"""
