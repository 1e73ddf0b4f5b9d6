import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom import units
from tokenroom.errors import TokenroomError


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("80GiB", 80 * 2**30),
        ("80 GB", 80 * 10**9),
        ("1073741824B", 2**30),
        ("0.5gib", 2**29),
        ("4Gi", 4 * 2**30),
        ("96g", 96 * 10**9),
        ("1TiB", 2**40),
        ("1e3 MB", 10**9),
        (" 12 kib ", 12 * 1024),
        ("1b", 1),
    ],
)
def test_sizes_are_parsed(text: str, num_bytes: int) -> None:
    assert units.parse_bytes(text, "size") == num_bytes


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1GiB", "0GiB", "1e999GiB", "nan", "inf", "80 QB", "1 2", "0x10"]
)
def test_what_is_no_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(TokenroomError, match=r"--gpu-memory is .*; give a positive size"):
        units.parse_bytes(text, "--gpu-memory")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("8192", 8192), ("32k", 32768), ("1M", 2**20), ("0.5k", 512), ("1e3", 1000)],
)
def test_token_counts_are_parsed(text: str, tokens: int) -> None:
    assert units.parse_tokens(text, "length") == tokens


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "0.3k", "8192GiB", "1e999", "nan", "k"])
def test_what_is_no_token_count_is_refused_by_name(text: str) -> None:
    with pytest.raises(TokenroomError, match=r"--max-model-len is .*; give a positive whole"):
        units.parse_tokens(text, "--max-model-len")


def test_sizes_are_written_with_binary_units() -> None:
    assert units.format_gib(2**30 * 79.19) == "79.19 GiB"
    assert units.format_bytes(0) == "0 B"
    assert units.format_bytes(1023) == "1,023 B"
    assert units.format_bytes(1024) == "1.00 KiB"
    assert units.format_bytes(-3 * 2**20) == "-3.00 MiB"
    assert units.format_bytes(5 * 2**40) == "5.00 TiB"


def test_counts_are_written_as_people_say_them() -> None:
    assert units.format_count(1234567.4) == "1,234,567"
    assert units.format_parameters(8_030_261_248) == "8.03B"
    assert units.format_parameters(671_026_419_200) == "671B"
    assert units.format_parameters(134_515_008) == "135M"
    assert units.format_parameters(1_026_408_232_448) == "1.03T"
    assert units.format_parameters(999) == "999"
    assert units.format_parameters(999_885_952) == "1.00B"
    assert units.format_parameters(999_499_999) == "999M"
    assert units.format_parameters(99_999_000_000) == "100B"


@given(st.integers(min_value=1, max_value=2**50))
def test_whole_bytes_come_back_unchanged(num_bytes: int) -> None:
    assert units.parse_bytes(f"{num_bytes}B", "size") == num_bytes


@given(st.text(max_size=40))
def test_any_text_is_a_size_or_refused(text: str) -> None:
    try:
        num_bytes = units.parse_bytes(text, "size")
    except TokenroomError:
        return
    assert num_bytes >= 1


@pytest.mark.parametrize("text", ["0", "10", "1e3", " 80 "])
def test_a_size_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(TokenroomError, match="without a unit; write"):
        units.parse_bytes(text, "--used")


def test_lengths_have_a_bound() -> None:
    assert units.parse_tokens("1e12", "length") == units.MAX_TOKENS
    with pytest.raises(TokenroomError, match="give at most 1,000,000,000,000 tokens"):
        units.parse_tokens("1e13", "length")


@pytest.mark.parametrize("text", ["1_0", "\u0663", "1.0", "", "ten", "0x10", "1e3"])
def test_what_is_no_count_is_refused_by_name(text: str) -> None:
    with pytest.raises(TokenroomError, match=r"field is .*; give a whole number"):
        units.parse_count(text, "field")


def test_counts_and_numbers_are_read_within_their_bounds() -> None:
    assert units.parse_count(" 12 ", "field", 1, 64) == 12
    assert units.parse_number("-1.5e-3", "field") == -0.0015
    with pytest.raises(TokenroomError, match="give a whole number from 1 to 64"):
        units.parse_count("65", "field", 1, 64)
    with pytest.raises(TokenroomError, match="give a number"):
        units.parse_number("1_0.5", "field")


@pytest.mark.parametrize("text", ["936GB", "936", "fast", "-1GB/s", "1e30GiB/s"])
def test_what_is_no_rate_is_refused_by_name(text: str) -> None:
    with pytest.raises(TokenroomError, match=r"field is .*; give"):
        units.parse_rate(text, "field")
    assert units.parse_rate("936 GB/s", "field") == 936e9
