"""Known differences between the embedded engine and the real one, and the reason for each.

A listed case that matches fails the suite, so that the list stays current.
"""

from __future__ import annotations

ON_THE_WIRE: dict[str, str] = {
    "a body with a length and in chunks": (
        "Two conflicting body lengths allow request smuggling, so it is a 400; the real server uses the chunks."
    ),
    "a chunk whose size is not a number": "400, because it is the client's error; the real server returns 500.",
    "a chunk longer than its size": "400, because it is the client's error; the real server returns 500.",
    "a header over two lines": "Folded headers are forbidden since RFC 9112; the real server unfolds them.",
    "lines that end in a line feed alone": (
        "The embedded engine requires CR and LF; the real server accepts either."
    ),
    "a version between 1.1 and 2": (
        "The embedded engine supports HTTP/1.0 and HTTP/1.1; the real server accepts any 1.x."
    ),
}
"""Differences in the status for bytes that are hardly HTTP, by the names in test_wire.py."""

DIVERGENCES: dict[str, str] = {
    "a body of 1,500 levels is rejected": (
        "Both reject it, the embedded engine because of its depth: Python's stack allows some hundred levels, Go's ten "
        "thousand."
    ),
    "an integer written as 2.0 is accepted": (
        "The real server's scale endpoint fails on an integer that it decoded as a float and rejects the object; the "
        "embedded engine accepts 2.0 as 2, as the schema does."
    ),
    "a pod's other fields are immutable": (
        "Status, reason and field agree; the real message ends in a dump of the Go structs that differ."
    ),
    "a deployment's scale set to its current value": (
        "The real server splits the managedFields entry of the manager that set the number in two, one of them without "
        "a time, and increments the revision; the embedded engine detects no change."
    ),
    "a job's template is immutable": (
        "Status, reason and field agree; the real message quotes the template as Go's internal struct."
    ),
}
