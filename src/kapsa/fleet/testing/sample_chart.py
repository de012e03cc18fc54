"""The chart of a sample operator: it reconciles Gadgets, and each version can be bad in one way.

A pod's label names what its controller does. A devcluster has no containers: its simulated pods crash or stay without
an image by that label, and `SimulatedController` does the rest.
"""

import enum
import json
from collections.abc import Mapping
from typing import Any

from kapsa.adapters.testing.chart_server import pack_chart

__all__ = [
    "BEHAVIOUR_LABEL",
    "CHART",
    "GADGET",
    "GROUP",
    "ControllerBehaviour",
    "gadget",
    "gadget_crd",
    "sample_chart",
    "sample_files",
]

CHART = "gadget-operator"
GROUP = "gadgets.example.com"
GADGET = f"{GROUP}/v1/Gadget"
BEHAVIOUR_LABEL = f"{GROUP}/behaviour"
_NO_FILES: Mapping[str, str | bytes] = {}


class ControllerBehaviour(enum.StrEnum):
    """The behaviour of the controller of a version."""

    HEALTHY = "healthy"
    CRASHES = "crashes"
    """Its container exits again and again."""
    NO_IMAGE = "no-image"
    """Its image cannot be pulled."""
    IDLE = "idle"
    """It runs and reconciles nothing; nor does it renew its Lease."""
    IGNORES = "ignores"
    """It renews its Lease and reconciles nothing."""
    BREAKS_SOME = "breaks-some"
    """It breaks every tenth of its resources."""


def gadget_crd(*, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the CRD, with more properties in the spec of a Gadget."""
    spec = {"size": {"type": "integer", "minimum": 0}, "color": {"type": "string"}, **(more or {})}
    condition = {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "string"},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer"},
        },
    }
    status = {
        "observedGeneration": {"type": "integer"},
        "conditions": {
            "type": "array",
            "items": condition,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    }
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "properties": status},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [version],
        },
    }


def gadget(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """Return a Gadget."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Gadget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec or {"size": 1, "color": "blue"},
    }


def sample_files(
    behaviour: ControllerBehaviour = ControllerBehaviour.HEALTHY,
    *,
    crd: Mapping[str, Any] | None = None,
    crd_folder: str = "crds",
) -> dict[str, str | bytes]:
    """Return the files of the chart. Names follow the release, so that two releases fit next to each other.

    The CRD is in `crds`, in `templates`, or not in the chart if the folder is empty.
    """
    registry = "missing" if behaviour is ControllerBehaviour.NO_IMAGE else "registry.example.com"
    values = {"replicas": 1, "image": f"{registry}/{CHART}", "behaviour": behaviour, "logLevel": "info"}
    return {
        "values.yaml": json.dumps(values),
        **({f"{crd_folder}/gadgets.yaml": json.dumps(crd or gadget_crd())} if crd_folder else {}),
        "templates/account.yaml": _ACCOUNT,
        "templates/role.yaml": _ROLE,
        "templates/settings.yaml": _SETTINGS,
        "templates/controller.yaml": _CONTROLLER,
    }


def sample_chart(
    version: str,
    behaviour: ControllerBehaviour = ControllerBehaviour.HEALTHY,
    *,
    crd: Mapping[str, Any] | None = None,
    crd_folder: str = "crds",
    files: Mapping[str, str | bytes] = _NO_FILES,
) -> bytes:
    """Return the archive of a version of the chart, with more files."""
    own = sample_files(behaviour, crd=crd, crd_folder=crd_folder)
    return pack_chart(CHART, version, {**own, **files}, appVersion=version)


_ACCOUNT = """apiVersion: v1
kind: ServiceAccount
metadata:
  name: "{{ .Release.Name }}"
  namespace: "{{ .Release.Namespace }}"
"""
_ROLE = f"""apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: "{{{{ .Release.Name }}}}"
rules:
- apiGroups: [{GROUP}]
  resources: [gadgets, gadgets/status]
  verbs: [get, list, watch, update, patch]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: "{{{{ .Release.Name }}}}"
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: "{{{{ .Release.Name }}}}"
subjects:
- kind: ServiceAccount
  name: "{{{{ .Release.Name }}}}"
  namespace: "{{{{ .Release.Namespace }}}}"
"""
_SETTINGS = """apiVersion: v1
kind: ConfigMap
metadata:
  name: "{{ .Release.Name }}"
  namespace: "{{ .Release.Namespace }}"
data:
  logLevel: {{ .Values.logLevel | quote }}
"""
_CONTROLLER = f"""apiVersion: apps/v1
kind: Deployment
metadata:
  name: "{{{{ .Release.Name }}}}"
  namespace: "{{{{ .Release.Namespace }}}}"
  labels:
    app.kubernetes.io/name: {CHART}
    app.kubernetes.io/instance: "{{{{ .Release.Name }}}}"
spec:
  replicas: {{{{ .Values.replicas }}}}
  selector:
    matchLabels:
      app.kubernetes.io/name: {CHART}
      app.kubernetes.io/instance: "{{{{ .Release.Name }}}}"
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {CHART}
        app.kubernetes.io/instance: "{{{{ .Release.Name }}}}"
        app.kubernetes.io/version: {{{{ .Chart.AppVersion | quote }}}}
        {BEHAVIOUR_LABEL}: {{{{ .Values.behaviour | quote }}}}
    spec:
      serviceAccountName: "{{{{ .Release.Name }}}}"
      containers:
      - name: controller
        image: "{{{{ .Values.image }}}}:{{{{ .Chart.AppVersion }}}}"
        args: [--log-level, {{{{ .Values.logLevel | quote }}}}]
"""
