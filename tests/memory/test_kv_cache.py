from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom.errors import DeploymentError
from tokenroom.memory.kv_cache import (
    attention_bytes_per_token,
    attention_cell_bytes,
    element_bytes,
    indexer_bytes_per_token,
    kept_tokens,
    latent_bytes_per_token,
    mixer_bytes,
    recurrent_state,
    request_bytes,
)
from tokenroom.models.hf_config import read_config
from tokenroom.models.spec import Attention, Indexer, LatentAttention, Recurrence, Recurrent

LLAMA2_7B = Attention(num_heads=32, num_kv_heads=32, head_dim=128, value_head_dim=128)
GQA = replace(LLAMA2_7B, num_kv_heads=8)
DEEPSEEK = LatentAttention(
    num_heads=128,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
)
GATED_DELTA = Recurrent(
    kind=Recurrence.GATED_DELTA,
    conv_dim=8192,
    conv_kernel=4,
    num_heads=32,
    state_shape=(128, 128),
    key_heads=16,
)


def test_llama2_7b_takes_16_kib_a_token_a_layer():
    assert attention_bytes_per_token(LLAMA2_7B, "float16") == 16 * 1024


@pytest.mark.parametrize(
    ("dtype", "num_bytes"),
    [
        ("bfloat16", 512),
        ("float32", 1024),
        ("fp8", 256),
        ("fp8_e5m2", 256),
        ("int8", 256),
        ("nvfp4", 144),
        ("int8_per_token_head", 264),
        ("int4_per_token_head", 136),
        ("ultraquant_4bit", 136),
        ("turboquant_k8v4", 196),
        ("turboquant_4bit_nc", 134),
        ("turboquant_k3v4_nc", 118),
        ("turboquant_3bit_nc", 102),
    ],
)
def test_bytes_of_a_cell_of_128(dtype, num_bytes):
    assert attention_cell_bytes(128, 128, dtype) == num_bytes


def test_kv_heads_are_divided_until_one_is_left():
    sizes = [
        attention_bytes_per_token(GQA, "bfloat16", tensor_parallel_size=tp) for tp in (1, 2, 8, 16)
    ]
    assert sizes == [4096, 2048, 512, 512]


def test_latents_carry_no_values_and_a_rotary_key():
    assert latent_bytes_per_token(DEEPSEEK, "bfloat16") == 1152
    assert latent_bytes_per_token(DEEPSEEK, "fp8") == 576
    assert latent_bytes_per_token(DEEPSEEK, "fp8_ds_mla") == 656
    assert indexer_bytes_per_token(Indexer(num_heads=64, head_dim=128, top_k=2048)) == 132


def test_sparse_layers_add_the_keys_of_their_indexer():
    sparse = replace(DEEPSEEK, indexer=Indexer(num_heads=64, head_dim=128, top_k=2048))
    assert mixer_bytes(sparse, 1000, "fp8_ds_mla") == 1000 * (656 + 132)


def test_compressed_latents_keep_a_window_and_a_state_a_ratio():
    compressed = replace(DEEPSEEK, compress_ratio=128, window=128)
    assert mixer_bytes(compressed, 1280, "bfloat16") == (128 + 10) * 1152


@pytest.mark.parametrize(
    ("mixer", "tokens"),
    [
        (GQA, 10_000),
        (replace(GQA, window=4096), 4096),
        (replace(GQA, window=20_000), 10_000),
        (replace(GQA, chunk=8192), 10_000 - 8192),
        (replace(GQA, cross=True), 1500),
    ],
)
def test_tokens_kept_of_ten_thousand(mixer, tokens):
    assert kept_tokens(mixer, 10_000, encoder_tokens=1500) == tokens


def test_a_chunk_is_full_at_its_end():
    chunked = replace(GQA, chunk=8192)
    assert kept_tokens(chunked, 8192) == 8192
    assert kept_tokens(chunked, 8193) == 1
    assert kept_tokens(chunked, 0) == 0


@pytest.mark.parametrize("change", [{"shares_kv_of": 3}, {"encoder_only": True}])
def test_layers_without_a_cache_of_their_own(change):
    assert mixer_bytes(replace(GQA, **change), 1000, "bfloat16") == 0


def test_qwen3_next_state_is_what_vllm_measures():
    state = recurrent_state(GATED_DELTA, convolution_dtype="bfloat16", recurrent_dtype="float32")
    assert (state.convolution, state.recurrent) == ((3, 8192), (32, 128, 128))
    assert state.num_bytes == 2_146_304


def test_states_do_not_grow_with_tokens():
    assert mixer_bytes(GATED_DELTA, 1, "bfloat16") == mixer_bytes(GATED_DELTA, 10**6, "bfloat16")


def test_mamba2_repeats_groups_for_every_rank():
    mixer = Recurrent(
        kind=Recurrence.MAMBA2,
        conv_dim=3072 + 2 * 128,
        conv_kernel=4,
        num_heads=48,
        state_shape=(64, 128),
        num_groups=1,
    )
    state = recurrent_state(mixer, convolution_dtype="bfloat16", tensor_parallel_size=4)
    assert state.convolution == (3, (3072 + 2 * 4 * 128) // 4)
    assert state.recurrent == (12, 64, 128)


def test_mamba1_has_no_heads():
    mixer = Recurrent(kind=Recurrence.MAMBA1, conv_dim=8192, conv_kernel=4, state_shape=(8192, 16))
    state = recurrent_state(
        mixer, convolution_dtype="bfloat16", tensor_parallel_size=2, num_speculative_tokens=3
    )
    assert (state.convolution, state.recurrent) == ((3, 4096), (4096, 16))


def test_speculative_tokens_widen_the_convolution():
    state = recurrent_state(GATED_DELTA, convolution_dtype="bfloat16", num_speculative_tokens=2)
    assert state.convolution == (5, 8192)


@pytest.mark.parametrize(
    ("mixer", "wish", "dtype"),
    [
        (GATED_DELTA, None, "bfloat16"),
        (replace(GATED_DELTA, state_dtype="float32"), None, "float32"),
        (replace(GATED_DELTA, state_dtype="float32"), "float16", "float16"),
        (replace(GATED_DELTA, kind=Recurrence.KIMI_DELTA), None, "float32"),
    ],
)
def test_type_of_a_recurrent_state(mixer, wish, dtype):
    state = recurrent_state(mixer, convolution_dtype="bfloat16", recurrent_dtype=wish)
    assert state.recurrent_dtype == dtype


def test_heads_that_ranks_cannot_share_are_refused():
    with pytest.raises(DeploymentError, match="tensor_parallel_size 3"):
        recurrent_state(GATED_DELTA, convolution_dtype="bfloat16", tensor_parallel_size=3)


def test_an_unknown_type_is_named():
    with pytest.raises(DeploymentError, match="'fp3'"):
        element_bytes("fp3")


def test_request_of_a_whole_model():
    spec = read_config(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "vocab_size": 32000,
            "torch_dtype": "float16",
        },
        "llama-2-7b",
    )
    assert request_bytes(spec, 4096) == 2 * 2**30
    assert request_bytes(spec, 4096, "fp8") == 2**30
    assert request_bytes(spec, 4096, tensor_parallel_size=4) == 2**29


HEADS = st.sampled_from([1, 2, 4, 8, 16, 32])
SHAPES = st.builds(
    Attention,
    num_heads=st.just(32),
    num_kv_heads=HEADS,
    head_dim=st.sampled_from([64, 96, 128, 256]),
    value_head_dim=st.sampled_from([64, 128]),
)
TYPES = st.sampled_from(["float16", "fp8", "nvfp4", "turboquant_4bit_nc"])


@given(SHAPES, st.integers(0, 10**7), st.integers(1, 64), TYPES)
def test_full_attention_is_linear_in_tokens(mixer, tokens, times, dtype):
    assert mixer_bytes(mixer, tokens * times, dtype) == times * mixer_bytes(mixer, tokens, dtype)


@given(SHAPES, HEADS, HEADS, TYPES)
def test_more_ranks_never_hold_more_each_nor_less_together(mixer, few, many, dtype):
    few, many = sorted((few, many))
    small = attention_bytes_per_token(mixer, dtype, tensor_parallel_size=few)
    large = attention_bytes_per_token(mixer, dtype, tensor_parallel_size=many)
    assert large <= small
    assert large * many >= small * few


@given(SHAPES, st.integers(1, 10**5), st.integers(1, 10**5), st.integers(1, 10**5))
def test_windows_never_keep_more_than_full_attention(mixer, window, tokens, more):
    windowed = replace(mixer, window=window)
    assert mixer_bytes(windowed, tokens, "fp8") <= mixer_bytes(mixer, tokens, "fp8")
    assert mixer_bytes(windowed, tokens, "fp8") <= mixer_bytes(windowed, tokens + more, "fp8")
