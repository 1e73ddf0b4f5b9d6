import pytest

from tokenroom.errors import WorkloadError
from tokenroom.serving.request import Request


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt_tokens", 0),
        ("output_tokens", -1),
        ("arrival_seconds", -0.5),
        ("arrival_seconds", float("nan")),
        ("arrival_seconds", float("inf")),
    ],
)
def test_an_impossible_request_is_refused_by_the_field_that_is_wrong(
    field: str, value: float
) -> None:
    fields = {"arrival_seconds": 0.0, "prompt_tokens": 3, "output_tokens": 2, field: value}
    with pytest.raises(WorkloadError, match=f"request 7 has {field} "):
        Request(id=7, **fields)  # type: ignore[arg-type]


def test_block_hashes_below_zero_are_refused() -> None:
    with pytest.raises(WorkloadError, match="request 7 has a block hash of -1"):
        Request(id=7, arrival_seconds=0, prompt_tokens=40, output_tokens=2, block_hashes=(3, -1))
