"""What helps: the engine's own flag, and an effect that is computed and of the right sign."""

from typing import Any

import pytest

from tokenroom.diagnosis.finding import CauseName, Finding, Phase
from tokenroom.diagnosis.remedies import Remedy, remedies
from tokenroom.diagnosis.remedy_flags import FLAGS, spelled
from tokenroom.fitting import FitResult, fit
from tokenroom.reports.diagnosis_text import remedy_text
from tokenroom.reports.messages import Language
from tokenroom.units import GIB

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
KV_BYTES = 2 * 32 * 8 * 128 * 2  # a token: K and V of 32 layers of 8 heads of 128 in 16 bits


def found(cause: CauseName, reason: str = "", **values: object) -> Finding:
    return Finding(
        cause=cause, phase=Phase.RUNTIME, weight=1, evidence=(), reason=reason, values=values
    )


def helps(
    cause: CauseName, engine: str, result: FitResult | None, reason: str = "", **values: object
) -> dict[str, Remedy]:
    return {one.key: one for one in remedies(found(cause, reason, **values), engine, result)}


def deployed(engine: str, gpu: str = "h100", model: str = LLAMA, **settings: Any) -> FitResult:
    return fit(model, gpu, engine=engine, **settings)


@pytest.mark.parametrize(
    ("engine", "flag", "of_gpu"),
    [
        # the share is of the whole GPU, of the whole GPU, and of what weights and the largest step
        # leave free of it
        ("vllm", "--gpu-memory-utilization", True),
        ("sglang", "--mem-fraction-static", True),
        ("tensorrt-llm", "--kv_cache_free_gpu_memory_fraction", False),
    ],
)
def test_a_larger_share_makes_the_pool_larger_by_that_share(
    engine: str, flag: str, of_gpu: bool
) -> None:
    result = deployed(engine)
    share = helps(CauseName.KV_POOL_TOO_SMALL, engine, result, "preemptions")["share"]
    assert share.flag.startswith(flag + " ")
    assert share.effect is not None
    before, after = share.effect.pool_tokens
    stage = result.governing_stage
    more = 0.04 * stage.total_bytes
    grown = (after - before) * KV_BYTES
    assert grown == pytest.approx(more, rel=0.06) if of_gpu else 0.7 * more < grown < more


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_smaller_steps_lower_the_peak_and_enlarge_the_pool(engine: str) -> None:
    own = {"vllm": {"max_num_batched_tokens": 65536}}.get(engine, {})
    gpu = "rtx4090" if engine == "llama.cpp" else "h100"
    result = deployed(engine, gpu, LLAMA + "@q8_0" if engine == "llama.cpp" else LLAMA, **own)
    cause = CauseName.COMPUTE_BUFFER if engine == "llama.cpp" else CauseName.ACTIVATION_PEAK
    budget = helps(cause, engine, result)["budget"]
    assert budget.effect is not None
    large, small = budget.effect.activation_bytes
    assert small < large
    assert budget.effect.pool_tokens[1] >= budget.effect.pool_tokens[0]


@pytest.mark.parametrize(
    ("engine", "flag"),
    [
        ("vllm", "--kv-cache-dtype fp8"),
        ("sglang", "--kv-cache-dtype fp8_e4m3"),
        ("tensorrt-llm", "kv_cache_config.dtype: fp8"),
    ],
)
def test_eight_bits_double_the_pool(engine: str, flag: str) -> None:
    kind = helps(CauseName.KV_POOL_TOO_SMALL, engine, deployed(engine))["kv_type"]
    assert kind.flag == flag
    assert kind.effect is not None
    assert kind.effect.pool_tokens[1] == pytest.approx(2 * kind.effect.pool_tokens[0], rel=0.001)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_twice_the_gpus_hold_half_the_weights_each(engine: str) -> None:
    more = helps(CauseName.WEIGHTS_TOO_BIG, engine, deployed(engine))["gpus"]
    assert more.flag.endswith(" 2")
    assert more.effect is not None
    large, small = more.effect.weights_bytes
    assert small == pytest.approx(large / 2, rel=0.01)
    assert more.effect.ttft_ratio is not None
    assert more.effect.ttft_ratio < 1


def test_a_smaller_checkpoint_is_named_with_its_effect() -> None:
    smaller = helps(CauseName.WEIGHTS_TOO_BIG, "vllm", deployed("vllm"))["weights_as"]
    assert (smaller.values["value"], smaller.flag) == ("fp8", "")
    assert smaller.effect is not None
    assert smaller.effect.weights_bytes[1] < 0.6 * smaller.effect.weights_bytes[0]


def test_layers_of_llama_cpp_leave_the_gpu() -> None:
    result = deployed("llama.cpp", "rtx4090", LLAMA + "@q8_0")
    layers = helps(CauseName.WEIGHTS_TOO_BIG, "llama.cpp", result)["layers"]
    assert layers.flag == "-ngl 24"  # of 32 and the output
    assert layers.effect is not None
    large, small = layers.effect.weights_bytes
    assert 0.6 * large < small < 0.85 * large


def test_what_would_still_not_start_comes_last() -> None:
    result = deployed("vllm", "l4")
    assert result.plan.refusal is not None
    listed = remedies(found(CauseName.KV_POOL_TOO_SMALL), "vllm", result)
    starts = [one.effect.starts for one in listed if one.effect is not None]
    assert starts == sorted(starts, reverse=True)
    assert listed[0].key == "length"
    assert listed[0].effect is not None
    assert listed[0].effect.ttft_ratio is None  # there is no speed to compare with


def test_what_does_nothing_here_is_not_advised() -> None:
    known = helps(CauseName.KV_PREALLOCATION, "sglang", deployed("sglang"))
    assert "length" not in known  # SGLang's pool is the same for short requests
    assert "requests" not in known


def test_the_share_that_suffices_is_computed_from_the_engines_figures() -> None:
    told = {"length": "262,144", "needed": "8.33", "available": "8.29", "total": "47.99"}
    short = helps(
        CauseName.KV_POOL_TOO_SMALL, "vllm", None, "pool_below_length", share="0.85", **told
    )
    assert short["share"].flag == "--gpu-memory-utilization 0.86"
    far = helps(
        CauseName.KV_POOL_TOO_SMALL, "vllm", None, "pool_below_length", **told | {"needed": "20"}
    )
    assert "share" not in far  # 12 of 48 GiB more than 0.9


def test_what_the_engine_was_told_counts_where_there_is_no_ledger() -> None:
    flags = {
        **{"tensor_parallel_size": 4, "max_num_batched_tokens": 16384, "max_num_seqs": 64},
        **{"gpu_memory_utilization": 0.95},
    }
    peak = remedies(found(CauseName.ACTIVATION_PEAK), "vllm", None, flags)
    assert [one.flag for one in peak] == [
        "--max-num-batched-tokens 8192",
        "--max-num-seqs 32",
        "--gpu-memory-utilization 0.9",
        "--tensor-parallel-size 8",
    ]


def test_twice_the_tensor_parallel_size_leaves_the_replicas_alone() -> None:
    result = deployed("vllm", tensor_parallel_size=2, data_parallel_size=2)
    more = helps(CauseName.WEIGHTS_TOO_BIG, "vllm", result)["gpus"]
    assert more.flag == "--tensor-parallel-size 4"
    assert more.effect is not None
    before, after = more.effect.weights_bytes
    assert 0.45 * before < after < 0.6 * before


def test_where_much_is_missing_the_length_comes_before_the_share() -> None:
    told = {"length": "32768", "tokens": "7344"}
    listed = remedies(found(CauseName.KV_POOL_TOO_SMALL, "pool_below_length", **told), "vllm", None)
    assert listed[0].flag == "--max-model-len 7344"
    assert [one.key for one in listed][-2:] == ["share", "budget"]
    too_little = ["too little" in remedy_text(one, Language.ENGLISH) for one in listed]
    assert too_little == [False] * (len(listed) - 2) + [True] * 2


def test_other_processes_leave_a_share() -> None:
    told = {"free": "60.00", "total": "79.15", "share": "0.9"}
    less = helps(CauseName.OTHER_PROCESS, "vllm", None, "free_below_budget", **told)["lower_share"]
    assert less.flag == "--gpu-memory-utilization 0.74"


def test_weights_that_are_made_smaller_while_loading_are_not_helped_by_their_type() -> None:
    known = helps(CauseName.WRONG_DTYPE_LOAD, "vllm", None, "quantized_while_loading")
    assert list(known) == ["quantized_checkpoint", "gpus"]


def test_a_step_that_is_unknown_is_left_out() -> None:
    assert "layers" not in helps(CauseName.WEIGHTS_TOO_BIG, "llama.cpp", None)
    assert "requests" not in helps(CauseName.KV_PREALLOCATION, "ollama", None)
    counted = helps(CauseName.WEIGHTS_TOO_BIG, "llama.cpp", None, layers="61")
    assert counted["layers"].flag == "-ngl 45"


@pytest.mark.parametrize("cause", list(CauseName))
@pytest.mark.parametrize("engine", [None, *FLAGS["length"]])
def test_every_remedy_has_words_in_both_languages(cause: CauseName, engine: str | None) -> None:
    for remedy in remedies(found(cause), engine, None):
        english = remedy_text(remedy, Language.ENGLISH)
        assert english != remedy_text(remedy, Language.CHINESE)
        assert "{" not in english


def test_a_step_must_hold_the_largest_image() -> None:
    told = {"item": "16384", "budget": "2048"}
    larger = helps(CauseName.ENCODER_BUDGET, "vllm", None, "encoder_above_budget", **told)
    assert larger["budget"].flag == "--max-num-batched-tokens 16384"


def test_flags_are_told_of_a_known_engine_alone() -> None:
    listed = remedies(found(CauseName.ACTIVATION_PEAK), None, None)
    assert listed
    assert not any(one.flag for one in listed)


def test_graphs_are_kept_where_a_little_room_does() -> None:
    told = {"share": "0.98", "asked": "136.00 MiB", "free": "120.88 MiB", "capacity": "22.36 GiB"}
    listed = remedies(found(CauseName.CUDA_GRAPHS, "graphs", **told), "vllm", None)
    assert listed[0].flag == "--gpu-memory-utilization 0.97"
    assert listed[-1].flag == "--enforce-eager"


def test_a_request_that_is_never_admitted_is_helped_by_the_pools_length() -> None:
    told = {"length": "262144", "tokens": "76640"}
    listed = remedies(found(CauseName.KV_POOL_TOO_SMALL, "never_admitted", **told), "vllm", None)
    assert listed[0].flag == "--max-model-len 76640"


def test_prompts_kept_on_the_host_are_fewer() -> None:
    known = helps(CauseName.HOST_RAM, "llama.cpp", None, "prompt_cache")
    assert known["prompt_cache"].flag == "--cache-ram 512"
    assert "fewer_copies" not in known  # nothing was being loaded
    assert "prompt_cache" not in helps(CauseName.HOST_RAM, "llama.cpp", None, "container_limit")


def test_braces_of_a_flag_stay() -> None:
    assert spelled("encoder", "vllm", 3) == "--limit-mm-per-prompt '{\"image\": 1}'"
    assert spelled("layers", "vllm", 3) is None


def test_the_effect_of_a_share_in_bytes() -> None:
    assert KV_BYTES == 128 * 1024
    assert deployed("vllm").governing_stage.total_bytes > 79 * GIB


def test_pieces_leave_room_for_a_whole_one_by_a_smaller_share() -> None:
    figures = {"asked": "298.00 MiB", "capacity": "79.19 GiB"}
    told = helps(CauseName.FRAGMENTATION, "vllm", None, "fragments", share=0.95, **figures)
    assert list(told) == ["expandable", "lower_share"]
    assert told["lower_share"].flag == "--gpu-memory-utilization 0.94"
    loading = Finding(
        cause=CauseName.FRAGMENTATION, phase=Phase.LOAD, weight=1, evidence=(), reason="fragments"
    )
    assert [one.key for one in remedies(loading, "vllm", None)] == ["expandable"]
    assert list(helps(CauseName.FRAGMENTATION, "llama.cpp", None, "fragments")) == ["expandable"]


def test_the_cache_of_llama_cpp_depends_on_its_context_and_type_alone() -> None:
    told = helps(CauseName.KV_PREALLOCATION, "llama.cpp", None, "kv_buffer", length=32_768)
    assert [one.flag for one in told.values()] == ["-c 16384", "-ctk q8_0 -ctv q8_0"]
