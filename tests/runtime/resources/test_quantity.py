"""Quantities: parsing, formatting, comparison and arithmetic."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kapsa.runtime.resources.metadata import ObjectMeta
from kapsa.runtime.resources.mismatch import ModelMismatch
from kapsa.runtime.resources.model import Spec, Status
from kapsa.runtime.resources.quantity import Quantity
from kapsa.runtime.resources.resource import CustomResource

SUFFIXES = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]


class DiskSpec(Spec):
    size: Quantity = Quantity("1Gi")


class Disk(CustomResource[DiskSpec, Status], group="example.com", version="v1"):
    """A disk."""


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("1", "1000m"),
        ("1Gi", "1024Mi"),
        ("1e3", "1k"),
        (".5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("+2", "2"),
        ("1E", "1e18"),
    ],
)
def test_equal_amounts_are_equal_however_they_are_written(one: str, same: str) -> None:
    assert Quantity(one) == Quantity(same)
    assert hash(Quantity(one)) == hash(Quantity(same))


def test_amounts_compare_by_size_not_by_text() -> None:
    assert Quantity("900m") < Quantity("1")
    assert Quantity("1Gi") > Quantity("1G")
    assert max(Quantity("9Mi"), Quantity("1Gi")) == "1Gi"
    assert Quantity("1Gi") != "not a quantity"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Quantity("1Gi") + "512Mi", "1536Mi"),
        (Quantity("1") - "250m", "750m"),
        (Quantity("100m") * 3, "300m"),
        (0.5 * Quantity("1Gi"), "512Mi"),
        (Quantity("1") / 3, "333333334n"),
        (-Quantity("1k"), "-1k"),
        (sum([Quantity("1Gi"), Quantity("1Gi")], Quantity("0")), "2Gi"),
        (Quantity("1Gi") - "1Gi", "0"),
        (Quantity(0.1), "100m"),
        (Quantity("1Ki") + "500m", "1024500m"),
    ],
)
def test_results_are_exact_and_in_the_canonical_form(result: Quantity, text: str) -> None:
    assert str(result) == text


@given(st.integers(-(10**6), 10**6), st.sampled_from(SUFFIXES))
def test_a_formatted_result_parses_to_the_same_amount(number: int, suffix: str) -> None:
    amount = Quantity(f"{number}{suffix}")
    assert Quantity(str(amount * 1)) == amount
    assert amount + amount == amount * 2


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "1GB", "1e", "1e999", "--1", "1.2.3", "١"])
def test_an_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a number with an optional suffix|exponent"):
        Quantity(text)


def test_a_quantity_field_accepts_a_string_or_a_number() -> None:
    assert Disk.decode(b'{"spec":{"size":"2Gi"}}').spec.size == Quantity("2Gi")
    assert Disk.decode(b'{"spec":{"size":5}}').spec.size == 5
    disk = Disk(metadata=ObjectMeta(name="d"), spec=DiskSpec(size=Quantity("1.5Gi")))
    assert disk.to_dict()["spec"] == {"size": "1.5Gi"}


@pytest.mark.parametrize("value", [b'"1GB"', b"true", b"[]"])
def test_a_stored_value_that_is_not_a_quantity_is_a_mismatch(value: bytes) -> None:
    with pytest.raises(ModelMismatch, match=r"spec\.size"):
        _ = Disk.decode(b'{"metadata":{"name":"d"},"spec":{"size":' + value + b"}}").spec


@pytest.mark.parametrize(
    "text",
    ["1e101", "1e1.5", "1e-999", "1e", "9" * 5000, "0." + "0" * 5000 + "1", "1Gi", "1e3", "-.5e-9", "99e99"],
)
def test_a_cluster_accepts_only_quantities_that_can_be_read(text: str) -> None:
    accepted = re.search(Quantity.openapi()["pattern"], text) is not None
    try:
        Quantity(text)
    except ValueError:
        assert not accepted
