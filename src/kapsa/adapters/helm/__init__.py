"""Helm charts that are not trusted: `chart` renders them with the real helm, cut off from clusters, networks
and files.

`_values_schema` decides whether helm may validate the values, since a schema can refer to other files and
servers.
"""
