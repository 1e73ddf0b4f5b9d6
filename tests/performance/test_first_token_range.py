"""Ranges of TTFT reach beyond those of their steps as far as measurements did."""

import pytest

from tokenroom.performance.host import COSTS, first_token_ends
from tokenroom.serving_speed import speed


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_a_ttft_has_the_range_of_its_engine(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = speed("llama-3.1-8b", "h100", engine=engine, context=8192, concurrency=4)
    for name, cost in COSTS.items():
        monkeypatch.setitem(COSTS, name, cost._replace(first_token_range=(1.0, 1.0)))
    bare = speed("llama-3.1-8b", "h100", engine=engine, context=8192, concurrency=4)
    monkeypatch.undo()
    ends = first_token_ends(
        COSTS[engine.replace("-", "_").replace(".", "_")],
        bare.ttft_seconds.low,
        bare.ttft_seconds.high,
        bare.predicted.prefill.low_seconds,
    )
    assert wide.ttft_seconds[1:] == pytest.approx(ends)
    assert wide.ttft_seconds.value == bare.ttft_seconds.value
    assert wide.tpot_seconds == bare.tpot_seconds
    assert wide.ttft_seconds.low <= wide.ttft_seconds.value <= wide.ttft_seconds.high
