"""Quantities are read and stored as kube-apiserver does."""

from __future__ import annotations

import pytest

from kapsa.schemas.quantities import canonical, parse


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("1000m", "1"),
        ("1.5", "1500m"),
        ("0.1", "100m"),
        ("1024Mi", "1Gi"),
        ("1500Mi", "1500Mi"),
        ("1024", "1024"),
        ("1000k", "1M"),
        ("1e3", "1e3"),
        ("0", "0"),
        ("0.5Gi", "512Mi"),
        ("1.1Ei", "1268213655067531673600m"),
        (2, "2"),
    ],
)
def test_a_quantity_has_one_canonical_form(given: str | int, stored: str) -> None:
    assert canonical(given) == stored
    assert parse(stored) == parse(given)


@pytest.mark.parametrize("text", ["many", "1e99999999999", "1e-99999999999", "9" * 5000])
def test_an_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match the regular expression"):
        parse(text)
