"""Where the embedded engine is known to differ from the real one, and why that is left so.

A case listed here that matches after all fails the suite: the list must not outlive its reasons.
"""

from __future__ import annotations

ON_THE_WIRE: dict[str, str] = {
    "a body with a length and in chunks": (
        "Two ways to tell a body's end are how requests get smuggled; the real server believes the chunks."
    ),
    "a chunk whose size is no number": "400: it is the client's mistake, of which the real server makes its own 500.",
    "a chunk longer than its size": "400: it is the client's mistake, of which the real server makes its own 500.",
    "a header over two lines": "Folded headers are forbidden since RFC 9112; the real server unfolds them.",
    "lines that end in a line feed alone": "The embedded engine wants CR and LF; the real server takes either.",
    "a version between 1.1 and 2": "The embedded engine knows HTTP/1.0 and HTTP/1.1; the real server takes any 1.x.",
}
"""The same for bytes that are hardly HTTP, by the names in test_wire.py."""

KNOWN: dict[str, str] = {
    "a body of 1,500 levels is refused": (
        "Both refuse it, the embedded engine already for its depth: Python's stack carries some hundred levels, "
        "Go's ten thousand."
    ),
    "an integer written as 2.0 is taken": (
        "The real server's scale endpoint trips over a whole number it decoded as a float and refuses the object; "
        "the embedded engine takes 2.0 for 2, as the schema does."
    ),
    "a pod's other fields are immutable": (
        "Status, reason and field agree; the real message ends in a dump of the Go structs that differ."
    ),
    "a deployment's scale set to what it is already": (
        "The real server splits the record of the manager who set the number in two, one of them without a time, and "
        "counts a revision; the embedded engine sees no change."
    ),
    "a definition with a rule that costs too much is refused": (
        "The real server estimates what a rule may cost from the bounds of its fields; the embedded engine has no "
        "estimator and takes every rule that compiles."
    ),
    "a job's template is immutable": (
        "Status, reason and field agree; the real message quotes the template as Go's internal struct."
    ),
}
