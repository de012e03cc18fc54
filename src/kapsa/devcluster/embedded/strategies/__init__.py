"""Strategies: the peculiarities of each kind on its way to storage.

A strategy holds the defaults that OpenAPI does not carry, the initial status, the addresses to allocate, the
fields that must not change, and the rules of kube-apiserver's hand-written validation, in its words. The
rooms, lowest first:

    generic     the strategies that others extend, and the rules that many of them use
    custom      CustomResourceDefinitions and custom resources
    pods        pods and pod templates
    workloads   the kinds that run pods: apps, batch, autoscaling
    network     Services, endpoints, Ingresses and NetworkPolicies
    policy      RBAC, quotas and limits, disruption budgets, webhook configurations
    cluster     namespaces, nodes, storage, configuration, Events and Leases

`catalog` maps a resource to its strategy.
"""
