"""Hosts and routes: `choice` picks a host, `pools` allocates it, `routes` writes the route to it.

`routing_rules` are the limits on what a tenant may configure about routing, for routes and for rendered
objects alike.
"""
