"""Helm charts that are not trusted: `chart` renders them with the real helm, in isolation.

`_values_schema` decides whether helm may validate the values, since a schema can refer to other files and
servers.
"""
