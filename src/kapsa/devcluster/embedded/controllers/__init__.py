"""The controllers of the embedded control plane: what kube-controller-manager, kube-scheduler and kubelets do.

Each kind's logic is a pure function from objects to a :class:`~.plan.Plan`; `reconcilers` and `node_agents` find what
a change concerns and hand the plan to the :class:`~.executor.Executor`. :class:`Controllers` runs them all;
:class:`Workloads` is how a test makes pods slow, crash, or their node vanish.
"""

from kapsa.devcluster.embedded.controllers.manager import Controllers
from kapsa.devcluster.embedded.controllers.workloads import Behaviour, Delays, Workloads

__all__ = ["Behaviour", "Controllers", "Delays", "Workloads"]
