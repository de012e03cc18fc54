"""Where the embedded engine is known to differ from the real one, and why that is left so.

A case listed here that matches after all fails the suite: the list must not outlive its reasons.
"""

from __future__ import annotations

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
        "The real server records the scale endpoint as one more manager even when the number stays; "
        "the embedded engine sees no change and keeps the revision."
    ),
    "a job's template is immutable": (
        "Status, reason and field agree; the real message quotes the template as Go's internal struct."
    ),
}
