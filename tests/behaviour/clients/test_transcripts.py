"""Transcripts of kubectl: their format, and what is masked in them."""

from __future__ import annotations

import pytest

from tests.behaviour.clients.transcripts import Masks, parse, render

TEXT = """#: A comment.
$ kubectl get pods -l 'app in (a, b)'
NAME  READY

web  1/1
$ eventually kubectl get none
! error: none
[1]
$ kubectl delete pods --all
"""


def test_a_transcript_is_read_and_written_without_loss() -> None:
    steps = list(parse(TEXT))
    assert [step.arguments for step in steps] == [
        ("kubectl", "get", "pods", "-l", "app in (a, b)"),
        ("kubectl", "get", "none"),
        ("kubectl", "delete", "pods", "--all"),
    ]
    assert [step.repeated for step in steps] == [False, True, False]
    assert [step.answer for step in steps] == ["NAME  READY\n\nweb  1/1", "! error: none\n[1]", ""]
    assert render(steps) == TEXT


@pytest.mark.parametrize(
    ("output", "masked"),
    [
        ("pod/web-7d4b9c8f6d-x2x9z created", "pod/web-HASH-SUFFIX created"),
        ("web   2/2     2            2           5m30s", "web  2/2  2  2  AGE"),
        ("uid: 0b5f1c1e-7d3a-4b52-9f7e-0c8c6c2b7a11", "uid: UID"),
        ("in session-1-1 at 10.96.0.17, port 80:31234/TCP", "in NAMESPACE at IP, port 80:PORT/TCP"),
        ("Scheduled  3s (x4 over 2m)  scheduler", "Scheduled  AGE  scheduler"),
        ("replicas: 3\nimage: example.com/web:1", "replicas: 3\nimage: example.com/web:1"),
        ("version: v1.36.3, generation: 2", "version: v1.36.3, generation: 2"),
    ],
)
def test_what_differs_from_run_to_run_is_masked_and_nothing_else(output: str, masked: str) -> None:
    assert Masks("session-1-1", "/tmp/x").answer(0, output, "") == masked


def test_errors_and_the_exit_code_are_part_of_an_answer() -> None:
    answer = Masks("ns", "/tmp/x").answer(1, "", "error: no\n")
    assert answer == "! error: no\n[1]"
