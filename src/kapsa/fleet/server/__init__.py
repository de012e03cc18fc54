"""The running manager: everything composed, started in order, and stopped in the reverse order.

- `services`: what the API and the background tasks use, built from settings.
- `keys`: the keys of the vault, from a file or from Vault.
- `api_parts`: the parts of the API.
- `registry`, `rollouts`: the use cases behind both.
- `background`: tasks that run all the time.
- `http_server`: the listener of the API.
- `served_certificate`: its certificate, loaded again when it is renewed.
- `lifecycle`: start and stop.
"""
