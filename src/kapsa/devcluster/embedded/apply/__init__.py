"""Server-side apply with its field ownership, and the patch types.

`field_manager` applies a configuration and tracks ownership: `typecheck` validates the configuration, `merge`
merges it, `claims` and `comparison` compute field sets (`fieldset`) by the merge rules of a schema (`shape`),
`conflicts` and `removal` settle what other managers own and what the applier left out, and `managedfields`
reads and writes the entries. `json_patch` and `strategic_patch` are the other patch types.
"""
