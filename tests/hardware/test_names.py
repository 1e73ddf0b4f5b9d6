import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom.hardware.names import (
    PartName,
    read_name,
    search_words,
    split_count,
    without_remark,
)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("NVIDIA H100 80GB HBM3", PartName("h100", 80)),
        ("h100", PartName("h100")),
        ("H100-SXM-80GB", PartName("h100sxm", 80)),
        ("H100 SXM5 80 GB", PartName("h100sxm", 80)),
        ("RTX 4070 Ti", PartName("4070ti")),
        ("rtx4070ti", PartName("4070ti")),
        ("NVIDIA RTX A6000", PartName("a6000")),
        ("V100-32G-SXM2", PartName("v100sxm", 32)),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", PartName("h100", 80, "3g.40gb")),
        ("A100-SXM4-80GB MIG 1g.10gb+me", PartName("a100sxm", 80, "1g.10gb")),
        ("NVIDIA GPU", PartName("nvidiagpu")),
        ("", PartName("")),
    ],
)
def test_names_are_taken_apart(text: str, part: PartName) -> None:
    assert read_name(text) == part


@pytest.mark.parametrize(
    ("text", "count", "name"),
    [
        ("8xA100", 8, "A100"),
        ("2 × RTX 4090", 2, "RTX 4090"),
        ("4x3090", 4, "3090"),
        ("H100 x8", 8, "H100"),
        ("RTX 4090 x 2", 2, "RTX 4090"),
        ("H100x8", 8, "H100"),
        ("h100:2", 2, "h100"),
        ("RTX 4090 : 4", 4, "RTX 4090"),
        ("h100:0", None, "h100:0"),
        (":2", None, ":2"),
        ("RTX 4090", None, "RTX 4090"),
        ("RX 580", None, "RX 580"),
        ("7900 XTX", None, "7900 XTX"),
        ("7900xtx", None, "7900xtx"),
        ("0xH100", None, "0xH100"),
    ],
)
def test_counts_are_split_off(text: str, count: int | None, name: str) -> None:
    assert split_count(text) == (count, name)


def test_words_of_a_name() -> None:
    assert search_words("NVIDIA GeForce RTX4090") == ("nvidia", "geforce", "rtx", "4090")
    assert search_words("a100-SXM4-80GB") == ("a100", "sxm", "80gb")
    assert search_words("---") == ()


def test_a_remark_is_dropped_unless_it_states_a_size() -> None:
    assert without_remark("GB10 (DGX Spark)") == "GB10"
    assert without_remark("H200 (80 GB emulated)") is None
    assert without_remark("H200") is None


@given(st.text(max_size=80))
def test_any_text_is_read_without_failing(text: str) -> None:
    read_name(text)
    split_count(text)
    search_words(text)
    without_remark(text)
