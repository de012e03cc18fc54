"""Resource quotas: what an object uses, which quotas count it, and the writes that would exceed them."""
