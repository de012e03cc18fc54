"""HTTP/1.1 to one API server: connections, their pool, and the transport on top."""
