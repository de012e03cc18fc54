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

from kapsa.runtime.telemetry import logs

# isort: split
from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.cache.informer import Informer
from kapsa.runtime.cache.store import Change, Key, StoredObject, by_label
from kapsa.runtime.client.client import Client
from kapsa.runtime.controller.context import Context
from kapsa.runtime.controller.controller import Controller, Owns, Reads, Requeue, TerminalError, Watch
from kapsa.runtime.controller.events import EventRecorder, ObjectReference
from kapsa.runtime.controller.predicates import (
    all_of,
    annotation_changed,
    any_of,
    deletion_requested,
    generation_changed,
    label_changed,
    negate,
)
from kapsa.runtime.controller.workqueue import Backoff, WorkQueue
from kapsa.runtime.generate.crd import custom_resource_definitions
from kapsa.runtime.generate.rbac import PolicyRule, rbac_manifests, rule_for
from kapsa.runtime.operator.election import LeaderElection
from kapsa.runtime.operator.lifecycle import RunningOperator
from kapsa.runtime.operator.operator import Operator
from kapsa.runtime.resources.conditions import Condition
from kapsa.runtime.resources.definition import PrinterColumn, Scale, printer_column
from kapsa.runtime.resources.metadata import GroupVersionKind, ObjectMeta, OwnerReference
from kapsa.runtime.resources.mismatch import ModelMismatch
from kapsa.runtime.resources.model import Field, Part, Rule, Spec, Status, rule
from kapsa.runtime.resources.quantity import IntOrString, Quantity
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.webhooks.admission import (
    AdmissionRequest,
    AdmissionResponse,
    MutatingWebhook,
    ValidatingWebhook,
    allow,
    deny,
)
from kapsa.runtime.webhooks.certificates import Lifetimes
from kapsa.runtime.webhooks.conversion import Converter
from kapsa.runtime.webhooks.webhooks import Webhooks

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
