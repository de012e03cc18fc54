"""Structural schemas: validation, pruning, defaulting and CEL, as kube-apiserver applies them.

The node that all of it works on:

- `schema`: `Schema`, parsed from a CRD's `openAPIV3Schema`, and the schema of object metadata.

An object against its schema, in the order in which the API server does it:

- `pruning`: drop or report the fields that the schema does not specify.
- `defaulting`: fill in the defaults.
- `validation`: check the object; an update does not fail on values that it leaves unchanged.
- `string_formats`, `embedded_resources`, `list_types`: the parts of validation with rules of their own.
- `cel`: the rules in `x-kubernetes-validations`, loaded when the first of them runs.

A CRD's schema itself:

- `structurality`: the constraints that make a schema structural.
- `crd_schema`: all other constraints, down to defaults and CEL rules.

The API server's words and values:

- `field_errors`: one error of one field, in the text of `k8s.io/apimachinery`.
- `go_format`, `crd_structs`: values and parts of a CRD as Go prints them in messages.
- `go_regexp`: Go's regular expressions on Python's `re`.
- `quantities`: resource quantities such as `100m` and `1Gi`.

Nothing here imports another package of Kapsa, and nothing but `cel` needs the CEL binding.
"""
