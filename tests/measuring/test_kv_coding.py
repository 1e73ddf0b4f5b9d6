import pytest

from tokenroom.errors import MeasurementError
from tokenroom.measuring.kv_coding import (
    FULL,
    TYPES,
    Fp8Scale,
    Scheme,
    parse_coding,
    parse_scheme,
    schemes_of,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        # 2 heads, 100 tokens, 16 channels: 3,200 values
        ("int8/tensor", 3200 + 4),
        ("int8/head", 3200 + 2 * 4),
        ("int8/channel", 3200 + 32 * 4),
        ("int8/channel/32", 3200 + 32 * 4 * 4),
        ("int8/token", 3200 + 200 * 4),
        ("int4/token/8", 1600 + 200 * 2 * 4),
        ("int4-asym/channel", 1600 + 32 * 8),
        ("int3/tensor", 1200 + 4),
        ("fp8/head", 3200 + 2 * 4),
        ("e5m2/tensor", 3200 + 4),
    ],
)
def test_bytes_are_values_and_their_scales(text: str, size: float) -> None:
    assert parse_coding(text).stored_bytes(2, 100, 16) == size


def test_a_scale_of_one_is_not_kept() -> None:
    assert parse_coding("fp8/tensor", Fp8Scale.UNIT).stored_bytes(2, 100, 16) == 3200


def test_names_are_read_back() -> None:
    for kind in TYPES:
        for rest in ("tensor", "head", "channel", "token", "channel/32", "token/8"):
            coding = parse_coding(f"{kind}/{rest}")
            assert parse_coding(coding.name) == coding
    scheme = parse_scheme("int4/channel/32+int4/token/16")
    assert parse_scheme(scheme.name) == scheme
    assert parse_scheme("full") == FULL
    assert parse_scheme("full+int8/head") == Scheme(keys=None, values=parse_coding("int8/head"))


def test_every_type_at_every_granularity() -> None:
    found = schemes_of(["fp8", "int4"], ["tensor", "channel"], group=32)
    assert [scheme.name for scheme in found] == [
        "fp8_e4m3/tensor",
        "fp8_e4m3/channel/32",
        "int4/tensor",
        "int4/channel/32",
    ]
    assert [s.name for s in schemes_of(["int8"], ["head"], parts="keys")] == ["int8/head+full"]
    assert [s.name for s in schemes_of(["int8"], ["head"], parts="values")] == ["full+int8/head"]
    assert len(schemes_of(["fp8", "fp8_e4m3"], ["head"])) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("int5/tensor", "the KV cache type is 'int5'; it may be fp8, fp8_e4m3"),
        ("int8/block", "the granularity is 'block'; it may be tensor, head, channel, token"),
        ("int8", "the granularity is ''"),
        ("int8/tensor/4", "has a group; only channel"),
        ("int8/token/0", "no whole number from 1"),
        ("int8/token/x", "no whole number from 1"),
    ],
)
def test_an_unknown_coding_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(MeasurementError, match=sentence):
        parse_coding(text)


def test_three_parts_are_refused() -> None:
    with pytest.raises(MeasurementError, match="keys \\+ values"):
        parse_scheme("full+full+full")
