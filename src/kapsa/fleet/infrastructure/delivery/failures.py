"""Failures of a delivery. Their text is stored with the message and has no secret."""

__all__ = ["DeliveryError", "PermanentDeliveryError"]


class DeliveryError(Exception):
    """A message that could not be sent now, and may be sent later."""


class PermanentDeliveryError(DeliveryError):
    """A message that can never be sent."""
