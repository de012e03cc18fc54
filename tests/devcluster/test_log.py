"""The log of failures, with and without a configured structlog."""

from __future__ import annotations

import pytest
import structlog
from structlog.testing import capture_logs

from kapsa.devcluster.log import log_exception


def test_a_failure_goes_to_standard_error_and_never_to_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    structlog.reset_defaults()
    log_exception("request failed", ValueError("a bad value"), path="/api")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "request failed" in printed.err
    assert "ValueError: a bad value" in printed.err


def test_a_failure_goes_where_the_process_logs() -> None:
    with capture_logs() as logs:
        log_exception("request failed", ValueError("a bad value"), path="/api")
    assert [(each["event"], each["log_level"], each["path"]) for each in logs] == [
        ("request failed", "error", "/api")
    ]
