"""The façade is complete: whatever a module of the runtime shows to the others, a user can import from `kapsa.runtime`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import kapsa.runtime
import kapsa.runtime.testing

ROOT = Path(__file__).resolve().parents[2]

INTERNAL = {
    "the machinery that runs controllers; users write a Controller": {
        "Applied",
        "Applier",
        "Declared",
        "Drift",
        "Reconciler",
        "Scopes",
        "Selection",
        "Services",
        "await_user_code",
        "check_declaration",
        "takes_cache",
    },
    "handed out by the work queue, the informer and the running operator; users read them and never construct them": {
        "HealthCheckResult",
        "ClusterMetrics",
        "ControllerMetrics",
        "CounterSeries",
        "CounterVector",
        "HealthChecks",
        "Item",
        "HistogramSeries",
        "HistogramVector",
        "MeteredController",
        "MeteredInformer",
        "Metrics",
        "QueueObserver",
        "State",
        "Store",
    },
    "parts of the running operator; users write an Operator and its Webhooks": {
        "CONTENT_TYPE",
        "CertificatePair",
        "CertificateState",
        "Check",
        "ConversionReview",
        "Conversions",
        "Elector",
        "Fence",
        "Shard",
        "ShardQueue",
        "Shards",
        "owner_of",
        "LoopWatch",
        "OperatorDeclaration",
        "ProbeServer",
        "Result",
        "Review",
        "Tracing",
        "WebhookServer",
        "advance",
        "require_conversion",
        "secret_name",
    },
    "parts of the client; users call Client.connect, load_config or load_untrusted": {
        "BUILT_IN_GROUPS",
        "Credential",
        "CredentialSource",
        "DeclaredCredentials",
        "Discovery",
        "missing_kind",
        "Dispatcher",
        "ExecConfig",
        "ExecPlugin",
        "Headers",
        "HttpUrl",
        "Kubeconfig",
        "KubeconfigCluster",
        "KubeconfigUser",
        "OidcProvider",
        "Reader",
        "RereadFile",
        "RetryBudget",
        "RotatingAccess",
        "SelectedContext",
        "client_context",
        "default_paths",
        "error_from_response",
        "error_from_status",
        "present",
        "split_lines",
    },
    "helpers that the models and the generators share": {
        "Decode",
        "FieldOptions",
        "Identity",
        "JSON",
        "ObjectParser",
        "SchemaLocation",
        "Scope",
        "add_rules",
        "changes",
        "check_set",
        "class_description",
        "condition_status",
        "constrain",
        "decode_scalar",
        "encode_extension",
        "encode_json",
        "decoder_for",
        "extend",
        "field_options",
        "group_version_path",
        "key_and_version",
        "identity_of",
        "matcher",
        "merge_patch",
        "mismatch",
        "openapi_schema",
        "ordered",
        "owned_fields",
        "pluralize",
        "read_as",
        "reject_misspelt",
        "resource_of",
        "sealed",
        "selector_text",
        "set_nullable",
        "set_once",
        "version_number",
        "wire_name",
        "with_condition",
    },
    "the commands `kapsa run`, `kapsa new` and `kapsa add`": {
        "ExistingProject",
        "OperatorNotFoundError",
        "OperatorProject",
        "ScaffoldError",
        "add_kind",
        "add_version",
        "add_webhook",
        "create_project",
        "imported",
        "load_operator",
        "main",
        "own_source",
        "render_template",
        "write_manifests",
    },
    "exported as `logs.configure`, or called by `kapsa run`": {"adopt_standard_logging", "configure"},
    "the command `kapsa bundle`": {
        "BundleFacts",
        "HEADER",
        "InstallationSettings",
        "OPTIONAL",
        "OperatorImage",
        "PodPort",
        "RESOURCES",
        "UnbundlableError",
        "WebhookEndpoint",
        "access",
        "bundle_facts",
        "chart_files",
        "definitions",
        "deployment",
        "disruption_budget",
        "expression",
        "plain_manifests",
        "service_monitor",
        "services",
        "template",
        "value",
        "values_schema",
        "values_text",
    },
    "the debug endpoint and the command `kapsa inspect`": {
        "CacheReport",
        "ControllerReport",
        "Inspection",
        "InspectionReport",
        "KeyReport",
        "RunArchive",
        "RunError",
        "RunHistory",
        "RunRecord",
        "ShardsReport",
    },
    "exported by kapsa.runtime.testing": {"issue_certificate", "make_authority"},
}
"""Public names of inner modules that the façade does not export, by the reason."""


def modules() -> Iterator[ModuleType]:
    """Import every module of the runtime that is not private to its room."""
    for info in pkgutil.walk_packages(kapsa.runtime.__path__, "kapsa.runtime."):
        rooms = info.name.split(".")[2:]
        if rooms[0] != "testing" and not any(room.startswith("_") for room in rooms):
            yield importlib.import_module(info.name)


def public_names() -> dict[str, str]:
    """Return each public name of the inner modules, with the module that defines it."""
    return {name: module.__name__ for module in modules() for name in getattr(module, "__all__", ())}


def test_every_public_name_is_exported_or_internal_for_a_reason() -> None:
    accounted_for = {*kapsa.runtime.__all__, *(name for names in INTERNAL.values() for name in names)}
    missing = {name: module for name, module in public_names().items() if name not in accounted_for}
    assert missing == {}, "export these from kapsa.runtime, or list them here with a reason"


def test_no_internal_name_is_exported_or_gone() -> None:
    internal = {name for names in INTERNAL.values() for name in names}
    assert internal & set(kapsa.runtime.__all__) == set()
    assert internal - set(public_names()) == set()


@pytest.mark.parametrize("module", [kapsa.runtime, kapsa.runtime.testing])
def test_every_exported_name_exists_and_is_listed_once(module: ModuleType) -> None:
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


def test_every_module_lists_its_public_names() -> None:
    silent = [
        module.__name__
        for module in modules()
        if not hasattr(module, "__path__") and not hasattr(module, "__all__")
    ]
    assert silent == []


def test_an_exported_class_has_one_name() -> None:
    exported = {name: getattr(kapsa.runtime, name) for name in kapsa.runtime.__all__}
    renamed = {name for name, thing in exported.items() if inspect.isclass(thing) and thing.__name__ != name}
    assert renamed == set()


PUBLIC = re.compile(r"kapsa\.runtime(\.testing(\.plugin)?)?")
IMPORT = re.compile(r"^\s*(?:from|import) (kapsa\.runtime[\w.]*)", re.MULTILINE)


@pytest.mark.parametrize("folder", ["examples", "docs", "src/kapsa/runtime/generate/templates"])
def test_examples_pages_and_templates_import_the_facade_only(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".tmpl")]
    imported = {(path.name, module) for path in files for module in IMPORT.findall(path.read_text())}
    assert imported
    assert {each for each in imported if not PUBLIC.fullmatch(each[1])} == set()
