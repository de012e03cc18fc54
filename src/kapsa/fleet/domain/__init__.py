"""The rules of the fleet, without I/O and without a clock: the standard library and msgspec are enough."""
