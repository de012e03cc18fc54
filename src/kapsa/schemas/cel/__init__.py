"""CEL: expressions with the functions that Kubernetes adds, and the validation rules of custom resources.

`expressions` compiles and evaluates, with the functions of `library` (`text`, `numbers`, `networks`). `rules`
evaluates the rules of a schema on a value; `rule_compilation` checks the rules of a CRD, against the types
from `types`.
"""
