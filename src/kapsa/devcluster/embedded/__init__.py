"""The embedded engine: a Kubernetes API server with its controllers in one Python process.

:class:`Server` is the whole of it: :meth:`Server.handle` takes a :class:`Request` and gives a :class:`Reply`.
``http_front`` puts a socket before it; simulations call it directly.
"""

from kapsa.devcluster.embedded.server import Server
from kapsa.devcluster.wire.exchange import ADMIN, Reply, Request, RequestUser

__all__ = ["ADMIN", "Reply", "Request", "RequestUser", "Server"]
