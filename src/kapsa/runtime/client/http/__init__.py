"""HTTP/1.1 to one API server.

`transport` holds the `Transport` protocol, which is all that the client uses and what a test replaces, and
`HttpTransport`, which implements it on real sockets. Behind it, `_pool` lends connections, `_connector` opens
them (addresses, TLS, proxies), and `_connection` carries one request and its response after another. `url`
takes URLs apart.
"""
