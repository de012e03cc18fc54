"""The operator framework. This module is the façade: what an operator's author needs, in one import.

Modelling        resource (CustomResource, metadata, kinds) · model (Spec, Status, Part, Field, rule) · conditions · quantity
Generating       crd (types to CRDs, with schema and constraints) · rbac (rights to roles) · audit (rights against calls)
Talking          client · transport · auth · connect · discovery · errors · retry
Knowing          informer · store · cache · selector · predicates
Working          controller · context · workqueue · reconciler · applying · ownership · events
Running          operator · election · metrics · health
Trying           testing (needs kapsa[devcluster], and is the only part that does)
"""

from kapsa.runtime.client import Client
from kapsa.runtime.context import Context
from kapsa.runtime.controller import Controller, Owns, Reads, Requeue, TerminalError, Watch
from kapsa.runtime.crd import custom_resource_definitions
from kapsa.runtime.election import LeaderElection
from kapsa.runtime.operator import Operator
from kapsa.runtime.quantity import IntOrString, Quantity
from kapsa.runtime.rbac import PolicyRule, rbac_manifests, rule_for
from kapsa.runtime.resource import (
    Condition,
    CustomResource,
    Field,
    GroupVersionKind,
    ModelMismatch,
    ObjectMeta,
    OwnerReference,
    Part,
    PrinterColumn,
    Rule,
    Scale,
    Spec,
    Status,
    printer_column,
    rule,
)
from kapsa.runtime.workqueue import Backoff

__all__ = [
    "Backoff",
    "Client",
    "Condition",
    "Context",
    "Controller",
    "CustomResource",
    "Field",
    "GroupVersionKind",
    "IntOrString",
    "LeaderElection",
    "ModelMismatch",
    "ObjectMeta",
    "Operator",
    "OwnerReference",
    "Owns",
    "Part",
    "PolicyRule",
    "PrinterColumn",
    "Quantity",
    "Reads",
    "Requeue",
    "Rule",
    "Scale",
    "Spec",
    "Status",
    "TerminalError",
    "Watch",
    "custom_resource_definitions",
    "printer_column",
    "rbac_manifests",
    "rule",
    "rule_for",
]
