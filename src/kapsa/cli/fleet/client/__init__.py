"""The client of a fleet manager: the stored login, the HTTP API, and names that people abbreviate."""
