"""HTTP requests to servers that are not trusted.

- `client`: `HttpClient` sends one request within limits; `GuardedHttpClient` checks each address before it
  connects.
- `environment_proxy`: the proxy for a request.
- `redirects`: redirects that may be followed, and what is sent along.
- `address_guard`: the check of an address.
- `prober`: whether a host responds.
- `_guarded_resolver`: name resolution with the same check.
"""
