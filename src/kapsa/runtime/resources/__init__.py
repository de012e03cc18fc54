"""Resources: the model of a custom resource, and objects of any kind as the runtime handles them.

A kind as a class: `resource` holds `CustomResource`, `definition` the names, scope and columns that a class
declares, `model` the bases of its spec and status, `conditions` and `quantity` the types that most of them
share. `metadata` holds what all kinds have: `GroupVersionKind`, `ObjectMeta` and `OwnerReference`. `mismatch`
reports a stored object that does not fit its class, `attribute_names` a misspelt attribute of a class.

An object of any kind: `kind` resolves what callers pass as a kind, `identity` reads kind and name from a
body, `api_resource` holds the plural name and the paths behind a kind. `resource_list` is what a list
returns, `selector` chooses by labels, `merge_patch` compares two documents, and `stored_object` is the
compact form that the cache keeps.

Nothing here does I/O, and nothing here imports another room of the runtime.
"""
