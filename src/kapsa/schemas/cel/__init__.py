"""CEL: expressions with the functions that Kubernetes adds, and the validation rules of custom resources.

An expression is parsed (`language`), its types are checked against the functions of `library` (`checker`,
`literals`), and it is evaluated (`interpreter` with `folds` and `metered`, on `values`); `expressions` does all
three. `costs` estimates what an expression can cost at most, and meters what it does cost.

`rules` evaluates the rules of a schema on a value, which `conversion` prepares; `rule_compilation` checks the
rules of a CRD. Both get the types of `self` and `oldSelf` from `rule_types`, made of `declared_types`.
"""
