"""Where the embedded engine is known to differ from the real one, and why that is left so.

A case listed here that matches after all fails the suite: the list must not outlive its reasons.
"""

from __future__ import annotations

KNOWN: dict[str, str] = {}
