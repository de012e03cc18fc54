"""Authorization: the rules of stored Roles and bindings, and the decisions that follow from them."""
