"""What is predicted for a server, by its command or by what it tells."""

from dataclasses import replace

import pytest

from tokenroom.errors import TokenroomError, WatchError
from tokenroom.fitting import fit
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.models.resolve import load_model
from tokenroom.watching.observation import Facts
from tokenroom.watching.planned import Hardware, Prediction, given, told

MODEL = "Llama-3.1-8B-Instruct"


def by_itself(gpus: int = 1, *, counted: bool = True) -> Prediction:
    return told(
        lambda: Hardware(gpu=find_accelerator("h100"), gpus=gpus, counted=counted), load_model
    )


def test_the_parts_of_a_plan_add_up_to_its_peak() -> None:
    result = fit(load_model(MODEL), "h100", context=8192, version="0.32.0")
    found = given(result)(Facts(engine="vllm", version="0.32.0"))
    parts = (
        found.weights_bytes
        + found.activation_bytes
        + found.graphs_bytes
        + found.other_bytes
        + found.kv_pool_bytes
    )
    assert parts == found.peak_bytes
    assert found.kv_pool_tokens_low <= found.kv_pool_tokens <= found.kv_pool_tokens_high
    assert (found.told_by, found.gpus, found.starts) == ("command", 1, True)


def test_a_command_takes_the_version_that_answers() -> None:
    result = fit(load_model(MODEL), "h100", context=8192)
    found = given(result)(Facts(engine="vllm", version="0.19.0"))
    assert found.version == "0.19.0"
    asked = fit(load_model(MODEL), "h100", context=8192, engine="vllm@0.32.0")
    assert given(asked)(Facts(engine="vllm", version="0.19.0")).version == "0.32.0"


def test_a_command_of_another_engine_is_refused() -> None:
    result = fit(load_model(MODEL), "h100", context=8192)
    with pytest.raises(WatchError, match="describes vllm, and sglang answers"):
        given(result)(Facts(engine="sglang"))


def test_vllm_by_its_own_page() -> None:
    facts = Facts(
        engine="vllm",
        version="0.32.0",
        model=MODEL,
        max_model_len=8192,
        kv_pool_tokens=123,
        settings={"gpu_memory_utilization": 0.8, "block_size": 32, "kv_cache_dtype": "auto"},
    )
    found = by_itself()(facts)
    expected = fit(
        load_model(MODEL), "h100", gpus=1, context=8192, util=0.8, block_size=32, version="0.32.0"
    )
    assert found.kv_pool_tokens == expected.plan.kv_pool_tokens
    assert found.told_by == "endpoint"
    assert "tensor_parallel_size=1" in found.assumed  # vLLM tells no parallel sizes
    two = by_itself(2)(facts)
    assert two.gpus == 2
    assert two.weights_bytes < 0.6 * found.weights_bytes
    engines = replace(facts, settings={**facts.settings, "data_parallel_size": 2})
    assert by_itself(4)(engines).weights_bytes == two.weights_bytes
    assert by_itself(4)(engines).gpus == 4


def test_sglang_tells_everything() -> None:
    facts = Facts(
        engine="sglang",
        version="0.5.9",
        model=MODEL,
        max_num_seqs=256,
        settings={"tp_size": 2, "mem_fraction_static": 0.85, "dtype": "auto", "page_size": 1},
    )
    found = by_itself()(facts)
    assert (found.gpus, found.assumed) == (2, ())
    assert found.max_num_seqs == 256


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (Facts(engine="torch"), "not predicted"),
        (Facts(engine="vllm"), "--as"),
        (Facts(engine="vllm", model="/no/such/folder"), "no/such"),
    ],
)
def test_what_cannot_be_predicted_says_why(facts: Facts, said: str) -> None:
    with pytest.raises(TokenroomError, match=said):
        by_itself()(facts)


def test_no_gpu_no_plan() -> None:
    def nobody() -> Hardware:
        raise WatchError("name it with --gpu")

    with pytest.raises(WatchError, match="--gpu"):
        told(nobody, load_model)(Facts(engine="vllm", model=MODEL))


def test_slots_of_llama_server_are_taken_to_divide_the_cache() -> None:
    facts = Facts(engine="llama.cpp", model=MODEL, max_model_len=2048, max_num_seqs=4)
    found = by_itself()(facts)
    assert (found.kv_pool_tokens, found.max_model_len, found.max_num_seqs) == (8192, 2048, 4)
    assert "kv_unified=false" in found.assumed
