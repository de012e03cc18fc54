"""The bundle of an operator: a Helm chart and plain manifests, both from one set of objects.

facts         what the operator declares: its CRDs, rights, ports and webhooks
workload      the objects that run it, from the facts and the settings of an installation
expressions   settings that Helm fills in, inside objects that are Python data
values        the values of the chart, their defaults and their schema
chart         the files of the chart
manifests     the plain manifests
"""
