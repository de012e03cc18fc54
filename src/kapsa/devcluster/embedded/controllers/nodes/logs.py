"""Pod logs, as `kubectl logs` reads them: the text a test has set for a pod."""

from __future__ import annotations

from urllib.parse import parse_qs

from kapsa.devcluster.embedded.controllers.machinery.kinds import Object
from kapsa.devcluster.wire.exchange import Reply
from kapsa.devcluster.wire.status_errors import bad_request

_MAX_INT = 2**63 - 1


def read_log(pod: Object, query: str, text: str) -> Reply:
    """Return the reply to a GET of pods/log.

    Raises ApiError if the container does not exist or has not started, as kube-apiserver does.
    """
    options = {key: values[-1] for key, values in parse_qs(query, keep_blank_values=True).items()}
    container = _container(pod, options.get("container", ""))
    _check_started(pod, container)
    lines = text.splitlines(keepends=True)
    tail = options.get("tailLines")
    if tail is not None:
        count = _number("tailLines", tail)
        lines = lines[-count:] if count else []
    body = "".join(lines).encode()
    limit = options.get("limitBytes")
    if limit is not None:
        body = body[: _number("limitBytes", limit)]
    return Reply(status=200, headers={"content-type": "text/plain"}, body=body)


def _container(pod: Object, name: str) -> str:
    spec, metadata = pod["spec"], pod["metadata"]
    if name:
        if name not in {c["name"] for f in ("containers", "initContainers") for c in spec.get(f) or ()}:
            raise bad_request(f"container {name} is not valid for pod {metadata['name']}")
        return name
    containers = [c["name"] for c in spec["containers"]]
    if len(containers) > 1 or spec.get("initContainers"):
        message = f"a container name must be specified for pod {metadata['name']}, choose one of: [{' '.join(containers)}]"
        inits = [c["name"] for c in spec.get("initContainers") or ()]
        if inits:
            message += f" or one of the init containers: [{' '.join(inits)}]"
        raise bad_request(message)
    return str(containers[0])


def _check_started(pod: Object, container: str) -> None:
    status = pod.get("status") or {}
    statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    current = next((s for s in statuses if s["name"] == container), None)
    waiting = (current or {}).get("state", {}).get("waiting")
    if current is None or (waiting and not current.get("restartCount") and not current.get("lastState")):
        reason = (waiting or {}).get("reason") or "ContainerCreating"
        why = {
            "ContainerCreating": "is waiting to start: ContainerCreating",
            "ErrImagePull": "is waiting to start: image can't be pulled",
            "ImagePullBackOff": "is waiting to start: trying and failing to pull image",
        }.get(reason, f"is waiting to start: {reason}")
        name = pod["metadata"]["name"]
        raise bad_request(f'container "{container}" in pod "{name}" {why}')


def _number(option: str, text: str) -> int:
    if not text.isdigit() or int(text) > _MAX_INT:
        raise bad_request(f"unable to decode query parameter {option}: invalid syntax")
    return int(text)
