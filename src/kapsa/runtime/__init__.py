"""The operator framework. This module is the façade: what an operator's author needs, in one import.

The map, one noun a module:

Modelling        resource (CustomResource) · definition, metadata · model (Spec, Status, Part, Field, rule) ·
                 mismatch · conditions · quantity
Generating       crd (types to CRDs, with schema and constraints) · rbac (rights to roles) · audit (rights against calls)
Talking          client (reader, dispatch, watch) · transport (connection_pool, connecting, http_connection) · auth · connect · discovery · errors · retry · clock
Knowing          informer keeps a store (of stored objects) in step with the cluster · cache holds them all · selector
Working          controller is what people write · triggers and predicates wake it · reconciler runs it from its
                 workqueue · a run has a context · child and applying make the cluster have what is wanted and send
                 nothing while nothing has changed (ownership tells) · finalizers · events
Answering        admission, conversion · webhook declares, answering answers, webhook_server serves · registration and certificates keep them reachable
Running          operator is the declaration, running what it is made of, process the program · election · metrics · tracing ·
                 health · access · loop_watch · logs
Trying           testing (needs kapsa[devcluster], and is the only part that does)
"""

from kapsa.runtime import logs  # first: it decides how structlog is loaded

# isort: split
from kapsa.runtime.admission import (
    AdmissionRequest,
    AdmissionResponse,
    MutatingWebhook,
    ValidatingWebhook,
    allow,
    deny,
)
from kapsa.runtime.cache import Cache
from kapsa.runtime.certificates import Lifetimes
from kapsa.runtime.client import Client
from kapsa.runtime.context import Context
from kapsa.runtime.controller import Controller, Owns, Reads, Requeue, TerminalError, Watch
from kapsa.runtime.conversion import Converter
from kapsa.runtime.crd import custom_resource_definitions
from kapsa.runtime.election import LeaderElection
from kapsa.runtime.events import EventRecorder, ObjectReference
from kapsa.runtime.informer import Informer
from kapsa.runtime.operator import Operator
from kapsa.runtime.predicates import (
    all_of,
    annotation_changed,
    any_of,
    deletion_requested,
    generation_changed,
    label_changed,
    negate,
)
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
from kapsa.runtime.running import RunningOperator
from kapsa.runtime.store import Change, Key, StoredObject, by_label
from kapsa.runtime.webhook import Webhooks
from kapsa.runtime.workqueue import Backoff, WorkQueue

__all__ = [
    "AdmissionRequest",
    "AdmissionResponse",
    "Backoff",
    "Cache",
    "Change",
    "Client",
    "Condition",
    "Context",
    "Controller",
    "Converter",
    "CustomResource",
    "EventRecorder",
    "Field",
    "GroupVersionKind",
    "Informer",
    "IntOrString",
    "Key",
    "LeaderElection",
    "Lifetimes",
    "ModelMismatch",
    "MutatingWebhook",
    "ObjectMeta",
    "ObjectReference",
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
    "RunningOperator",
    "Scale",
    "Spec",
    "Status",
    "StoredObject",
    "TerminalError",
    "ValidatingWebhook",
    "Watch",
    "Webhooks",
    "WorkQueue",
    "all_of",
    "allow",
    "annotation_changed",
    "any_of",
    "by_label",
    "custom_resource_definitions",
    "deletion_requested",
    "deny",
    "generation_changed",
    "label_changed",
    "logs",
    "negate",
    "printer_column",
    "rbac_manifests",
    "rule",
    "rule_for",
]
