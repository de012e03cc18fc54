"""The operator framework: its public API.

Operators import from here, and their tests from `kapsa.runtime.testing`.

The rooms behind it, top to bottom. A room imports only from the rooms below it:

operator     Operator is the declaration, RunningOperator a run of it; leader election, rights check, `kapsa run`
webhooks     admission and conversion webhooks, their server, its certificates and its registration
controller   Controller is the class that users write; predicates and the work queue decide when it runs, the
             context gives it reads, server-side apply, events and the status
cache        informers keep a local copy of the watched kinds
generate     CRDs from types, RBAC from declarations, new projects
telemetry    metrics, traces, logs, health probes, a watchdog for the event loop
client       requests to the API server: discovery, watches, retries, authentication, HTTP
resources    typed resources: metadata, specs and statuses, conditions, quantities, selectors

`errors`, `clock` and `cancellation` are below all of them. `testing` is above: it runs operators on a
devcluster and needs `kapsa[devcluster]`.
"""

from kapsa.runtime.telemetry import logs

# isort: split
from kapsa.runtime.cache.cache import Cache, NotWatchedError
from kapsa.runtime.cache.informer import Informer, WatchScope
from kapsa.runtime.cache.object_parser import Transform
from kapsa.runtime.cache.store import Index, by_label
from kapsa.runtime.client.auth.access import AddressGuard, Authorization, ClusterAccess, StaticAccess
from kapsa.runtime.client.auth.untrusted import load_untrusted, public_address
from kapsa.runtime.client.client import Client, DeleteOptions, PatchType, Propagation, WriteOptions
from kapsa.runtime.client.config import ClusterConfig, from_kubeconfig, in_cluster, load_config
from kapsa.runtime.client.dispatch import Call, CallObserver, UnansweredWrite, WriteGate
from kapsa.runtime.client.http.transport import HttpTransport, Response, StreamResponse, Transport
from kapsa.runtime.client.reader import GetOptions, ListOptions, LogOptions, WatchOptions
from kapsa.runtime.client.retry import RetryPolicy
from kapsa.runtime.client.watch import Bookmark, WatchEvent
from kapsa.runtime.clock import Clock, SystemClock
from kapsa.runtime.controller.context import Context
from kapsa.runtime.controller.controller import Controller
from kapsa.runtime.controller.declarations import Keys, Mapper, Owns, Reads, Watch
from kapsa.runtime.controller.events import EventRecorder, ObjectReference
from kapsa.runtime.controller.outcomes import NotOursError, OutdatedError, Requeue, TerminalError
from kapsa.runtime.controller.predicates import (
    Predicate,
    all_of,
    annotation_changed,
    any_of,
    deletion_requested,
    generation_changed,
    label_changed,
    negate,
    resource_version_changed,
)
from kapsa.runtime.controller.sources import Channel, EventSource, Polling, Wake
from kapsa.runtime.controller.work.workqueue import Backoff, Priority, QueueShutDownError, Reason, WorkQueue
from kapsa.runtime.errors import (
    AlreadyExists,
    ApiError,
    ApiStatus,
    BadRequest,
    CertificateError,
    ClientError,
    ConfigError,
    Conflict,
    CredentialError,
    DecodeError,
    Expired,
    Forbidden,
    ForbiddenAddress,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NoResponse,
    NotFound,
    ResponseTooLarge,
    StatusCause,
    Timeout,
    TooLarge,
    TooManyRequests,
    TransportError,
    Unauthorized,
    Unavailable,
    UnknownKind,
    UnsupportedMediaType,
    WriteRefused,
)
from kapsa.runtime.generate.audit import Audit, MissingRights
from kapsa.runtime.generate.constraints import SchemaError
from kapsa.runtime.generate.crd import (
    ConversionWebhook,
    custom_resource_definition,
    custom_resource_definitions,
)
from kapsa.runtime.generate.docstrings import field_descriptions
from kapsa.runtime.generate.manifest import to_yaml
from kapsa.runtime.generate.rbac import (
    ControllerRights,
    Grant,
    GroupResource,
    OperatorRights,
    PolicyRule,
    WebhookRights,
    grants,
    rbac_manifests,
    rule_for,
)
from kapsa.runtime.operator.access_review import MissingRule, missing_rules
from kapsa.runtime.operator.cluster_run import ClusterRun
from kapsa.runtime.operator.clusters import (
    ClusterProvider,
    ClusterSet,
    KubeconfigDirectory,
    MemberCluster,
    StaticClusters,
)
from kapsa.runtime.operator.declaration import Collect, Companion, EveryReplica
from kapsa.runtime.operator.election import LeaderElection
from kapsa.runtime.operator.lifecycle import RunningOperator
from kapsa.runtime.operator.operator import Operator
from kapsa.runtime.operator.shard_leases import Sharding
from kapsa.runtime.resources.api_resource import ApiResource
from kapsa.runtime.resources.child_name import child_name
from kapsa.runtime.resources.conditions import Condition, ConditionStatus
from kapsa.runtime.resources.definition import PrinterColumn, ResourceDefinition, Scale, printer_column
from kapsa.runtime.resources.kind import Kind, Manifest, kind_of
from kapsa.runtime.resources.metadata import GroupVersionKind, ObjectMeta, OwnerReference
from kapsa.runtime.resources.mismatch import ModelMismatch
from kapsa.runtime.resources.model import Field, Part, Rule, Scalar, Spec, Status, rule, to_wire
from kapsa.runtime.resources.quantity import IntOrString, Quantity
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.resources.resource_list import ResourceList
from kapsa.runtime.resources.selector import LabelSelector
from kapsa.runtime.resources.stored_object import Change, Key, StoredObject
from kapsa.runtime.telemetry.health import PortTakenError
from kapsa.runtime.webhooks.admission import (
    AdmissionRequest,
    AdmissionResponse,
    MutatingWebhook,
    Operation,
    UserInfo,
    ValidatingWebhook,
    allow,
    deny,
)
from kapsa.runtime.webhooks.certificates import Lifetimes
from kapsa.runtime.webhooks.conversion import Converter
from kapsa.runtime.webhooks.webhooks import WebhookRoute, Webhooks

__all__ = [
    "AddressGuard",
    "AdmissionRequest",
    "AdmissionResponse",
    "AlreadyExists",
    "ApiError",
    "ApiResource",
    "ApiStatus",
    "Audit",
    "Authorization",
    "Backoff",
    "BadRequest",
    "Bookmark",
    "Cache",
    "Call",
    "CallObserver",
    "CertificateError",
    "Change",
    "Channel",
    "Client",
    "ClientError",
    "Clock",
    "ClusterAccess",
    "ClusterConfig",
    "ClusterProvider",
    "ClusterRun",
    "ClusterSet",
    "Collect",
    "Companion",
    "Condition",
    "ConditionStatus",
    "ConfigError",
    "Conflict",
    "Context",
    "Controller",
    "ControllerRights",
    "ConversionWebhook",
    "Converter",
    "CredentialError",
    "CustomResource",
    "DecodeError",
    "DeleteOptions",
    "EventRecorder",
    "EventSource",
    "EveryReplica",
    "Expired",
    "Field",
    "Forbidden",
    "ForbiddenAddress",
    "GetOptions",
    "Grant",
    "GroupResource",
    "GroupVersionKind",
    "HttpTransport",
    "Index",
    "Informer",
    "IntOrString",
    "InternalError",
    "Invalid",
    "Key",
    "Keys",
    "Kind",
    "KubeconfigDirectory",
    "LabelSelector",
    "LeaderElection",
    "Lifetimes",
    "ListOptions",
    "LogOptions",
    "Manifest",
    "Mapper",
    "MemberCluster",
    "MethodNotAllowed",
    "MissingRights",
    "MissingRule",
    "ModelMismatch",
    "MutatingWebhook",
    "NoResponse",
    "NotFound",
    "NotOursError",
    "NotWatchedError",
    "ObjectMeta",
    "ObjectReference",
    "Operation",
    "Operator",
    "OperatorRights",
    "OutdatedError",
    "OwnerReference",
    "Owns",
    "Part",
    "PatchType",
    "PolicyRule",
    "Polling",
    "PortTakenError",
    "Predicate",
    "PrinterColumn",
    "Priority",
    "Propagation",
    "Quantity",
    "QueueShutDownError",
    "Reads",
    "Reason",
    "Requeue",
    "ResourceDefinition",
    "ResourceList",
    "Response",
    "ResponseTooLarge",
    "RetryPolicy",
    "Rule",
    "RunningOperator",
    "Scalar",
    "Scale",
    "SchemaError",
    "Sharding",
    "Spec",
    "StaticAccess",
    "StaticClusters",
    "Status",
    "StatusCause",
    "StoredObject",
    "StreamResponse",
    "SystemClock",
    "TerminalError",
    "Timeout",
    "TooLarge",
    "TooManyRequests",
    "Transform",
    "Transport",
    "TransportError",
    "UnansweredWrite",
    "Unauthorized",
    "Unavailable",
    "UnknownKind",
    "UnsupportedMediaType",
    "UserInfo",
    "ValidatingWebhook",
    "Wake",
    "Watch",
    "WatchEvent",
    "WatchOptions",
    "WatchScope",
    "WebhookRights",
    "WebhookRoute",
    "Webhooks",
    "WorkQueue",
    "WriteGate",
    "WriteOptions",
    "WriteRefused",
    "all_of",
    "allow",
    "annotation_changed",
    "any_of",
    "by_label",
    "child_name",
    "custom_resource_definition",
    "custom_resource_definitions",
    "deletion_requested",
    "deny",
    "field_descriptions",
    "from_kubeconfig",
    "generation_changed",
    "grants",
    "in_cluster",
    "kind_of",
    "label_changed",
    "load_config",
    "load_untrusted",
    "logs",
    "missing_rules",
    "negate",
    "printer_column",
    "public_address",
    "rbac_manifests",
    "resource_version_changed",
    "rule",
    "rule_for",
    "to_wire",
    "to_yaml",
]
