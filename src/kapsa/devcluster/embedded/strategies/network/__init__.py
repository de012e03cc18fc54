"""The strategies of Services, endpoints, Ingresses and NetworkPolicies."""
