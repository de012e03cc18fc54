"""The environments operator, allowed to connect to servers on loopback. Configured by KAPSA_* variables.

`python -m kapsa.runtime.operator.entrypoint bench/peers/kapsa_environments.py:operator`
"""

from __future__ import annotations

from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.environments.operator import ExternalSystems, make_operator
from kapsa.environments.settings import Settings
from kapsa.runtime import Operator


def operator() -> Operator:
    """Return the operator, with no guard on the addresses that it connects to."""
    settings = Settings.from_environment()
    systems = ExternalSystems.of(settings, GuardedHttpClient(address_guard=None), address_guard=None)
    return make_operator(settings, systems)
