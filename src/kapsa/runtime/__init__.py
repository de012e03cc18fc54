"""The framework: typed resources, informers, work queue, reconcile, webhooks, leader election, CRD and RBAC generation."""
