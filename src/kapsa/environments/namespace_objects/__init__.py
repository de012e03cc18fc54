"""The objects in an environment's namespace, and the builds that run for it elsewhere.

`children` are the kinds and the marks of ownership, `apply_set` the rendered objects, `copies` the copied
Secrets and ConfigMaps, `kept_values` the generated values that stay, `builds` the builds an environment owns, `pods` the first problem of a workload's
pods, `reserved_names` the names the operator uses itself, and `preview_objects` the objects of a
PreviewEnvironment.
"""
