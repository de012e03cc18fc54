"""The strategies of kinds that restrict others: RBAC, limits, disruption budgets, webhook configurations."""
