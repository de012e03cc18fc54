"""The client: typed calls to the API server, discovery, retries and watch streams."""
