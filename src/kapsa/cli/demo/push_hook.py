"""The webhook that reports a push to the operator, signed as GitHub signs it.

The post-receive hook of the demo's repository runs this file by its path: `push_hook.py WEBHOOK REPOSITORY
SECRET_FILE`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import urllib.error
import urllib.request
import uuid
from pathlib import Path

_SECONDS = 10.0


def notify(webhook: str, repository: str, secret: str) -> int:
    """Send the webhook. Return the status code of the response."""
    body = json.dumps({"repository": {"clone_url": repository}}).encode()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "push",
        "X-GitHub-Delivery": str(uuid.uuid4()),
        "X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(),
    }
    request = urllib.request.Request(webhook, body, headers)  # noqa: S310 - the demo's own address
    # A proxy that is configured on this machine cannot reach the loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_SECONDS) as response:
        return int(response.status)


if __name__ == "__main__":
    try:
        notify(sys.argv[1], sys.argv[2], Path(sys.argv[3]).read_text())
    except (OSError, urllib.error.URLError) as error:
        sys.exit(f"the push was not reported to the operator: {error}")
