import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tiny_models import CONFIGS, LLAMA, built  # noqa: E402

from tokenroom.errors import MeasurementError  # noqa: E402
from tokenroom.measuring import measure  # noqa: E402
from tokenroom.measuring.beside import Beside, beside  # noqa: E402
from tokenroom.measuring.in_torch.generation import measure_generation  # noqa: E402
from tokenroom.measuring.in_torch.measurement import KvExceedsWeightsWarning  # noqa: E402
from tokenroom.measuring.record import Phase  # noqa: E402

EXACT = [
    (name, attention)
    for name in CONFIGS
    for attention in ("eager", "sdpa")
    if name not in ("gemma3", "olmo2", "mixtral", "qwen3_moe")
    and (name, attention) != ("gemma2", "sdpa")  # which has no soft cap
]


def generated(
    fields: dict[str, Any], attention: str = "sdpa", cache: str = "dynamic", tokens: int = 60
) -> Beside:
    model = built(fields, attention)
    measured = measure_generation(model, batch=2, prompt_tokens=tokens, new_tokens=4, cache=cache)
    return beside(measured)


def differences(found: Beside) -> dict[str, int | None]:
    return {row.key: row.difference_bytes for row in found.rows if row.predicted is not None}


@pytest.mark.parametrize(("name", "attention"), EXACT)
def test_a_generation_holds_what_is_predicted_to_the_byte(name: str, attention: str) -> None:
    found = generated(CONFIGS[name], attention)
    assert differences(found) == {"weights": 0, "kv_cache": 0, "prefill": 0, "decode": 0}
    assert not any(row.reasons for row in found.rows)


@pytest.mark.parametrize("cache", ["static", "fp8"])
def test_so_does_one_with_another_cache(cache: str) -> None:
    found = generated(LLAMA, cache=cache)
    assert differences(found) == {"weights": 0, "kv_cache": 0, "prefill": 0, "decode": 0}


def test_windows_keep_the_prompt_until_the_next_pass() -> None:
    found = generated(CONFIGS["gemma3"], tokens=96)
    row = found.row("prompt_in_windows")
    token = 2 * 2 * 32 * 2
    assert row is not None
    # Two layers with a window of 48 let go of 48 tokens a sequence, and the third grew by one.
    assert row.measured_bytes == 2 * (2 * 48 - 1) * token
    assert differences(found)["kv_cache"] == 0


def test_phases_are_told_by_new_tokens_and_cache() -> None:
    model = built(LLAMA)
    ids = torch.ones((1, 12), dtype=torch.long)
    with torch.no_grad(), measure(model) as seen:
        cache = model(ids, use_cache=True).cache
        model(ids[:, :5], cache=cache, use_cache=True)
        model(ids[:, :1], cache=cache, use_cache=True)
        model(ids[:, :1])
    passes = seen.measured.passes
    assert [done.phase for done in passes] == [
        Phase.PREFILL,
        Phase.PREFILL,
        Phase.DECODE,
        Phase.PREFILL,
    ]
    assert [done.cached_tokens for done in passes] == [0, 12, 17, 0]
    assert passes[2].cache is not None
    assert passes[2].cache.tokens == 18


def test_states_make_a_decode_too() -> None:
    fields = {
        "model_type": "mamba2",
        "hidden_size": 64,
        "num_heads": 4,
        "head_dim": 32,
        "num_hidden_layers": 2,
        "vocab_size": 256,
        "state_size": 8,
        "n_groups": 1,
        "expand": 2,
        "pad_token_id": 0,
    }
    found = generated(fields, "eager", tokens=16)
    phases = [done.phase for done in found.measured.passes]
    assert phases == [Phase.PREFILL, Phase.DECODE, Phase.DECODE, Phase.DECODE]
    assert differences(found)["kv_cache"] == 0
    weights = found.row("weights")
    assert weights is not None
    assert [reason.key for reason in weights.reasons] == ["weights_one_type"]


def test_an_encoder_decoder_is_measured() -> None:
    fields = {
        "model_type": "bart",
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "vocab_size": 256,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
        "bos_token_id": 0,
    }
    found = generated(fields, tokens=32)
    assert differences(found)["kv_cache"] == 0
    assert found.measured.passes[-1].cached_tokens == 3


def test_a_cache_made_without_the_configuration_keeps_every_token() -> None:
    model = built(CONFIGS["gemma3"])
    ids = torch.ones((1, 80), dtype=torch.long)
    with torch.no_grad(), measure(model) as seen:
        cache = transformers.DynamicCache()
        model(ids, cache=cache, use_cache=True)
        model(ids[:, :1], cache=cache, use_cache=True)
    row = beside(seen.measured).row("kv_cache")
    assert row is not None
    assert (row.difference_bytes or 0) > 0
    assert [reason.key for reason in row.reasons] == ["cache_without_windows"]


def test_what_the_caller_keeps_is_told_apart() -> None:
    model = built(LLAMA)
    ids = torch.ones((1, 16), dtype=torch.long)
    with torch.no_grad(), measure(model) as seen:
        kept = [torch.zeros(1000)]
        kept.append(model(ids, use_cache=False).logits)
        kept.append(model(ids, use_cache=False).logits)
    first, second = seen.measured.passes
    assert first.held_bytes == 4000
    assert second.held_bytes == 4000 + kept[1].nbytes
    assert first.transient_bytes == second.transient_bytes


def test_a_cache_beyond_the_weights_warns_once() -> None:
    model = built(LLAMA)
    ids = torch.ones((16, 300), dtype=torch.long)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with torch.no_grad(), measure(model) as seen:
            cache = model(ids, use_cache=True, logits_to_keep=1).cache
            model(ids[:, :1], cache=cache)
    mine = [one for one in said if one.category is KvExceedsWeightsWarning]
    assert len(mine) == 1
    assert "more than the weights" in str(mine[0].message)
    assert seen.measured.kv_exceeds_weights


def test_a_cpu_has_no_allocator_and_says_so() -> None:
    model = built(LLAMA)
    with torch.no_grad(), measure(model) as seen:
        model(torch.ones((1, 4), dtype=torch.long))
    assert seen.measured.allocators == ()
    assert beside(seen.measured).row("allocator_gap") is None


def test_the_model_is_left_as_it_was() -> None:
    model = built(LLAMA)
    ids = torch.arange(24).reshape(2, 12)
    with torch.no_grad():
        before = model(ids).logits
        with measure(model):
            within = model(ids).logits
    assert torch.equal(before, within)
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_an_error_inside_comes_out_and_leaves_no_hook() -> None:
    model = built(LLAMA)
    seen = measure(model)
    with pytest.raises(IndexError), seen:
        model(torch.full((1, 4), 999))
    assert not model._forward_hooks
    assert seen.measured.passes[0].cache is None


def test_what_cannot_be_measured_is_refused() -> None:
    model = built(LLAMA)
    with pytest.raises(MeasurementError, match=r"model is 'str'; give a torch\.nn\.Module"):
        measure("llama")  # type: ignore[arg-type]
    with pytest.raises(MeasurementError, match="no parameters"):
        measure(torch.nn.Identity())
    with pytest.raises(MeasurementError, match="meta device"):
        measure(model.to("meta"))
    with pytest.raises(MeasurementError, match="give 'tensors'"):
        measure(built(LLAMA), meter="allocator")
    with pytest.raises(MeasurementError, match="give tensors or allocator"):
        measure(built(LLAMA), meter="nvml")
    seen = measure(built(LLAMA))
    with pytest.raises(MeasurementError, match="has not ended"):
        _ = seen.measured
    with seen:
        pass
    with pytest.raises(MeasurementError, match="entered twice"):
        seen.__enter__()
    assert seen.measured.passes == ()


def test_states_that_a_model_keeps_outside_its_cache_are_not_explained_by_views() -> None:
    fields = {
        "model_type": "recurrent_gemma",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "lru_width": 64,
        "intermediate_size": 128,
        "attention_window_size": 16,
        "block_types": ["recurrent", "attention"],
        "vocab_size": 256,
        "pad_token_id": 0,
    }
    row = generated(fields, tokens=32).row("kv_cache")
    assert row is not None
    assert (row.difference_bytes or 0) < 0
    assert [reason.key for reason in row.reasons] == ["unexplained"]
