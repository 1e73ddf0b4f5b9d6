"""GGUF headers, written by the ``gguf`` package and read by ours."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES

from tokenroom.errors import ModelError, UnknownArchitectureError
from tokenroom.models.gguf import read_container, read_gguf, read_gguf_file
from tokenroom.models.gguf.architectures import ARCHITECTURES, FILE_TYPES
from tokenroom.models.gguf.container import GGML_TYPES
from tokenroom.models.ranges import BytesReader, open_file
from tokenroom.models.spec import (
    Attention,
    DenseFFN,
    LatentAttention,
    ModelSpec,
    MoEFFN,
    Recurrence,
    Recurrent,
    Rotary,
    Shard,
)

Q = gguf.GGMLQuantizationType
Tensors = dict[str, tuple[tuple[int, ...], Q]]


def write(path: Path, architecture: str, metadata: dict[str, Any], tensors: Tensors) -> Path:
    """A file with tensors of zeros; shapes slowest dimension first, as PyTorch has them."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        full = key if key.startswith(("general.", "tokenizer.")) else f"{architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(full, value)
        elif isinstance(value, int):
            writer.add_uint32(full, value)
        elif isinstance(value, float):
            writer.add_float32(full, value)
        elif isinstance(value, list):
            writer.add_array(full, value)
        else:
            writer.add_string(full, value)
    for name, (shape, kind) in tensors.items():
        block, size = GGML_QUANT_SIZES[kind]
        data = np.zeros((*shape[:-1], shape[-1] // block * size), np.uint8)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


BASE = {
    "block_count": 4,
    "context_length": 8192,
    "embedding_length": 256,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "general.file_type": 15,
    "tokenizer.ggml.tokens": ["<s>", "a", "b"],
}
ENDS: Tensors = {
    "token_embd.weight": ((1024, 256), Q.Q6_K),
    "output_norm.weight": ((256,), Q.F32),
}


def attention_block(index: int, kind: Q = Q.Q4_K) -> Tensors:
    return {
        f"blk.{index}.attn_norm.weight": ((256,), Q.F32),
        f"blk.{index}.attn_q.weight": ((256, 256), kind),
        f"blk.{index}.attn_k.weight": ((128, 256), kind),
        f"blk.{index}.attn_v.weight": ((128, 256), kind),
        f"blk.{index}.attn_output.weight": ((256, 256), kind),
    }


def ffn_block(index: int, kind: Q = Q.Q4_K) -> Tensors:
    return {
        f"blk.{index}.ffn_norm.weight": ((256,), Q.F32),
        f"blk.{index}.ffn_gate.weight": ((512, 256), kind),
        f"blk.{index}.ffn_up.weight": ((512, 256), kind),
        f"blk.{index}.ffn_down.weight": ((256, 512), kind),
    }


def dense(layers: int = 4, kind: Q = Q.Q4_K) -> Tensors:
    tensors = dict(ENDS)
    for index in range(layers):
        tensors |= attention_block(index, kind) | ffn_block(index, kind)
    return tensors


def stored_bytes(spec: ModelSpec) -> int:
    total = sum((weight.stored_bytes or 0) * count for _, weight, count in spec.all_weights())
    return total + sum(
        weight.stored_bytes or 0 for mtp in spec.mtp_layers for weight in mtp.weights
    )


def data_bytes(tensors: Tensors) -> int:
    total = 0
    for shape, kind in tensors.values():
        block, size = GGML_QUANT_SIZES[kind]
        total += int(np.prod(shape)) // block * size
    return total


def test_type_table_is_that_of_the_package() -> None:
    for kind, (block, size) in GGML_QUANT_SIZES.items():
        if kind is Q.Q8_1:
            continue  # the package says 40; ggml's own static assertion says 36
        assert GGML_TYPES[int(kind)][1:] == (block, size)
        assert GGML_TYPES[int(kind)][0].lower() == kind.name.lower()
    for file_type in gguf.LlamaFileType:
        if file_type.name != "GUESSED":
            name = file_type.name.removeprefix("MOSTLY_").removeprefix("ALL_")
            assert FILE_TYPES[int(file_type)] == name


def test_architectures_are_those_of_the_package() -> None:
    known = set(gguf.MODEL_ARCH_NAMES.values()) | {"deepseek32"}  # newer than the package
    assert set(ARCHITECTURES) <= known


def test_llama(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny-Q4_K_M.gguf", "llama", BASE, dense())
    spec = read_gguf_file(path)
    assert spec.name == "tiny-Q4_K_M"
    assert (spec.architecture, spec.model_type) == ("LlamaForCausalLM", "llama")
    assert (spec.hidden_size, spec.vocab_size, spec.num_layers) == (256, 1024, 4)
    assert spec.max_position_embeddings == 8192
    assert spec.tied_embeddings
    assert spec.quantization == "gguf"
    assert spec.extra["file_type"] == "Q4_K_M"
    assert len(spec.layer_kinds) == 1
    layer = spec.layers[0]
    assert layer.mixers == (Attention(num_heads=4, num_kv_heads=2, head_dim=64, value_head_dim=64),)
    assert layer.ffn == DenseFFN(intermediate_size=512)
    assert stored_bytes(spec) == data_bytes(dense())
    query = next(weight for weight in layer.weights if weight.name == "attn_q")
    assert query.scheme is not None
    assert (query.scheme.name, query.scheme.weight_bits) == ("ggml:q4_K", 4.5)
    assert spec.text_parameters == 1024 * 256 + 256 + 4 * (
        2 * 256 + 2 * 256 * 256 + 2 * 128 * 256 + 3 * 512 * 256
    )


def test_reader_of_the_package_agrees(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", "llama", BASE, dense())
    ours = read_container(open_file(path))
    theirs = gguf.GGUFReader(path)
    assert len(ours.tensors) == len(theirs.tensors)
    for mine, other in zip(ours.tensors, theirs.tensors, strict=True):
        assert mine.name == other.name
        assert mine.num_bytes == int(other.n_bytes)
        assert list(reversed(mine.shape)) == [int(size) for size in other.shape]
    assert ours.header_bytes == theirs.data_offset


def test_mixed_types_make_kinds(tmp_path: Path) -> None:
    tensors = dense()
    tensors["blk.2.ffn_down.weight"] = ((256, 512), Q.Q6_K)
    spec = read_gguf_file(write(tmp_path / "m.gguf", "llama", BASE, tensors))
    assert [count for _, count in spec.layer_kinds] == [3, 1]
    assert stored_bytes(spec) == data_bytes(tensors)


def test_bias_and_output(tmp_path: Path) -> None:
    tensors = dense() | {
        "output.weight": ((1024, 256), Q.Q8_0),
        "blk.0.attn_q.bias": ((256,), Q.F32),
    }
    spec = read_gguf_file(write(tmp_path / "m.gguf", "qwen2", BASE, tensors))
    assert not spec.tied_embeddings
    assert spec.layers[0].weights[1].bias == 256
    assert stored_bytes(spec) == data_bytes(tensors)


def test_experts(tmp_path: Path) -> None:
    metadata = BASE | {"block_count": 1, "expert_count": 8, "expert_used_count": 2}
    tensors: Tensors = ENDS | attention_block(0)
    tensors |= {
        "blk.0.ffn_gate_inp.weight": ((8, 256), Q.F32),
        "blk.0.ffn_gate_exps.weight": ((8, 512, 256), Q.MXFP4),
        "blk.0.ffn_up_exps.weight": ((8, 512, 256), Q.MXFP4),
        "blk.0.ffn_down_exps.weight": ((8, 256, 512), Q.MXFP4),
        "blk.0.ffn_down_exps.bias": ((8, 256), Q.F32),
        "blk.0.ffn_up_shexp.weight": ((128, 256), Q.Q8_0),
        "blk.0.ffn_down_shexp.weight": ((256, 128), Q.Q8_0),
    }
    spec = read_gguf_file(write(tmp_path / "m.gguf", "qwen3moe", metadata, tensors))
    assert spec.layers[0].ffn == MoEFFN(
        num_experts=8, experts_per_token=2, intermediate_size=512, shared_intermediate_size=128
    )
    down = next(weight for weight in spec.layers[0].weights if weight.name == "ffn_down_exps")
    assert (down.count, down.shape, down.bias, down.expert) == (8, (256, 512), 256, True)
    assert stored_bytes(spec) == data_bytes(tensors)
    mixtral = read_gguf_file(write(tmp_path / "x.gguf", "llama", metadata, tensors))
    assert mixtral.model_type == "mixtral"


def test_experts_before_stacking(tmp_path: Path) -> None:
    metadata = BASE | {"block_count": 1, "expert_count": 2, "expert_used_count": 1}
    tensors: Tensors = ENDS | attention_block(0)
    for expert in range(2):
        tensors[f"blk.0.ffn_gate.{expert}.weight"] = ((512, 256), Q.Q4_0)
        tensors[f"blk.0.ffn_up.{expert}.weight"] = ((512, 256), Q.Q4_0)
        tensors[f"blk.0.ffn_down.{expert}.weight"] = ((256, 512), Q.Q4_0)
    spec = read_gguf_file(write(tmp_path / "m.gguf", "llama", metadata, tensors))
    assert spec.layers[0].ffn == MoEFFN(num_experts=2, experts_per_token=1, intermediate_size=512)
    assert stored_bytes(spec) == data_bytes(tensors)


def windows(spec: ModelSpec) -> list[int | None]:
    return [
        mixer.window
        for layer in spec.layers
        for mixer in layer.mixers
        if isinstance(mixer, Attention)
    ]


def test_windows(tmp_path: Path) -> None:
    metadata = BASE | {"attention.sliding_window": 512}
    tensors = dense()

    def read(architecture: str, extra: dict[str, Any] | None = None) -> ModelSpec:
        path = write(tmp_path / "m.gguf", architecture, metadata | (extra or {}), tensors)
        return read_gguf_file(path)

    assert windows(read("gemma2")) == [512, None, 512, None]
    assert windows(read("gpt-oss")) == [512, None, 512, None]
    assert windows(read("cohere2")) == [512, 512, 512, None]
    assert windows(read("gemma3")) == [512, 512, 512, 512]
    assert windows(read("phi3")) == [None] * 4  # llama.cpp does not use it
    assert windows(read("llama")) == [None] * 4
    pattern = [True, False, False, True]
    listed = read("gemma4", {"attention.sliding_window_pattern": pattern})
    assert windows(listed) == [512, None, None, 512]
    chunks = [layer.mixers[0] for layer in read("llama4").layers]
    assert [mixer.chunk for mixer in chunks if isinstance(mixer, Attention)] == [8192] * 3 + [None]


def test_rotary_tables(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    spec = read_gguf_file(write(path, "llama", BASE, dense()))
    assert spec.rotary == (Rotary(width=64, kind="default", positions=8192),)
    stretched = BASE | {
        "rope.dimension_count": 64,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 2048,
    }
    spec = read_gguf_file(write(path, "llama", stretched, dense()))
    assert spec.rotary == (
        Rotary(width=64, kind="yarn", positions=8192, factor=4.0, original_positions=2048),
    )
    frequencies: Tensors = dense() | {"rope_freqs.weight": ((32,), Q.F32)}
    spec = read_gguf_file(write(path, "llama", BASE, frequencies))
    assert spec.rotary[0].kind == "llama3"
    two = BASE | {
        "attention.sliding_window": 512,
        "attention.sliding_window_pattern": [True, False, True, False],
        "rope.freq_base_swa": 10000.0,
    }
    spec = read_gguf_file(write(path, "gemma4", two, dense()))
    assert len(spec.rotary) == 2
    assert read_gguf_file(write(path, "gpt2", BASE, dense())).rotary == ()


def test_shared_caches(tmp_path: Path) -> None:
    metadata = BASE | {
        "attention.sliding_window": 512,
        "attention.sliding_window_pattern": [True, False, True, False],
        "attention.shared_kv_layers": 2,
    }
    spec = read_gguf_file(write(tmp_path / "m.gguf", "gemma4", metadata, dense()))
    shared = [
        mixer.shares_kv_of
        for layer in spec.layers
        for mixer in layer.mixers
        if isinstance(mixer, Attention)
    ]
    assert shared == [None, None, 0, 1]


def test_fused_attention_is_split_exactly(tmp_path: Path) -> None:
    tensors: Tensors = dict(ENDS)
    for index in range(4):
        tensors[f"blk.{index}.attn_qkv.weight"] = ((512, 256), Q.Q5_K)
        tensors[f"blk.{index}.attn_output.weight"] = ((256, 256), Q.Q5_K)
        tensors[f"blk.{index}.ffn_up.weight"] = ((1024, 256), Q.Q5_K)
        tensors[f"blk.{index}.ffn_down.weight"] = ((256, 512), Q.Q5_K)
    spec = read_gguf_file(write(tmp_path / "m.gguf", "phi3", BASE, tensors))
    parts = [weight for weight in spec.layers[0].weights if weight.name == "attn_qkv"]
    assert [weight.shape for weight in parts] == [(256, 256), (128, 256), (128, 256)]
    assert [weight.shard for weight in parts] == [Shard.COLUMN, Shard.KV_COLUMN, Shard.KV_COLUMN]
    assert spec.layers[0].ffn == DenseFFN(intermediate_size=512, gated=True)
    assert stored_bytes(spec) == data_bytes(tensors)


def test_latent_attention(tmp_path: Path) -> None:
    metadata = BASE | {
        "block_count": 1,
        "attention.q_lora_rank": 96,
        "attention.kv_lora_rank": 64,
        "attention.key_length": 80,
        "attention.value_length": 64,
        "attention.key_length_mla": 48,
        "attention.value_length_mla": 32,
        "attention.head_count_kv": 1,
    }
    tensors: Tensors = ENDS | ffn_block(0)
    tensors |= {
        "blk.0.attn_q_a.weight": ((96, 256), Q.Q4_K),
        "blk.0.attn_q_b.weight": ((4 * 48, 96), Q.Q8_0),
        "blk.0.attn_kv_a_mqa.weight": ((80, 256), Q.Q4_K),
        "blk.0.attn_k_b.weight": ((4, 64, 32), Q.Q8_0),
        "blk.0.attn_v_b.weight": ((4, 32, 64), Q.Q8_0),
        "blk.0.attn_output.weight": ((256, 128), Q.Q8_0),
    }
    spec = read_gguf_file(write(tmp_path / "m.gguf", "deepseek2", metadata, tensors))
    expected = LatentAttention(
        num_heads=4,
        q_lora_rank=96,
        kv_lora_rank=64,
        qk_nope_head_dim=32,
        qk_rope_head_dim=16,
        v_head_dim=32,
    )
    assert spec.layers[0].mixers == (expected,)
    assert spec.model_type == "deepseek_v2"
    assert not spec.assumptions
    old = {key: value for key, value in metadata.items() if not key.endswith("_mla")}
    old |= {"attention.key_length": 48, "attention.value_length": 32}
    spec = read_gguf_file(write(tmp_path / "m.gguf", "deepseek2", old, tensors))
    assert spec.layers[0].mixers == (expected,)
    assert "caches full heads" in spec.assumptions[0]


SSM = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 512,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 8,
    "ssm.group_count": 2,
}


def ssm_block(index: int, *extra: str) -> Tensors:
    return {
        f"blk.{index}.ssm_in.weight": ((1024, 256), Q.Q8_0),
        f"blk.{index}.ssm_conv1d.weight": ((512, 4), Q.F32),
        f"blk.{index}.ssm_a": ((8, 1), Q.F32),
        f"blk.{index}.ssm_dt.bias": ((8,), Q.F32),
        f"blk.{index}.ssm_out.weight": ((256, 512), Q.Q8_0),
    } | {f"blk.{index}.{name}.weight": ((64, 256), Q.Q8_0) for name in extra}


@pytest.mark.parametrize(
    ("architecture", "extra", "expected"),
    [
        (
            "mamba",
            ("ssm_x",),
            Recurrent(kind=Recurrence.MAMBA1, conv_dim=512, conv_kernel=4, state_shape=(512, 16)),
        ),
        (
            "mamba2",
            (),
            Recurrent(
                kind=Recurrence.MAMBA2,
                conv_dim=576,
                conv_kernel=4,
                num_heads=8,
                state_shape=(64, 16),
                num_groups=2,
            ),
        ),
        (
            "qwen3next",
            ("ssm_ba", "attn_qkv", "attn_gate"),
            Recurrent(
                kind=Recurrence.GATED_DELTA,
                conv_dim=576,
                conv_kernel=4,
                num_heads=8,
                state_shape=(64, 16),
                key_heads=2,
            ),
        ),
    ],
)
def test_recurrences(
    tmp_path: Path, architecture: str, extra: tuple[str, ...], expected: Recurrent
) -> None:
    tensors: Tensors = ENDS | ssm_block(0, *extra) | ssm_block(1, *extra)
    metadata = BASE | SSM | {"block_count": 2}
    spec = read_gguf_file(write(tmp_path / "m.gguf", architecture, metadata, tensors))
    assert spec.layers[0].mixers == (expected,)
    assert spec.layers[0].ffn is None
    assert stored_bytes(spec) == data_bytes(tensors)


def test_hybrids(tmp_path: Path) -> None:
    tensors: Tensors = ENDS | ssm_block(0) | attention_block(1) | ffn_block(2)
    metadata = BASE | SSM | {"block_count": 3, "attention.head_count_kv": [0, 2, 0]}
    spec = read_gguf_file(write(tmp_path / "m.gguf", "nemotron_h", metadata, tensors))
    assert [tuple(type(mixer) for mixer in layer.mixers) for layer in spec.layers] == [
        (Recurrent,),
        (Attention,),
        (),
    ]
    beside = ENDS | ssm_block(0) | attention_block(0) | ffn_block(0)
    metadata = BASE | SSM | {"block_count": 1}
    spec = read_gguf_file(write(tmp_path / "m.gguf", "falcon-h1", metadata, beside))
    assert [type(mixer) for mixer in spec.layers[0].mixers] == [Recurrent, Attention]


def test_short_convolutions_and_rwkv(tmp_path: Path) -> None:
    tensors: Tensors = ENDS | ffn_block(0) | {"blk.0.shortconv.conv.weight": ((256, 3), Q.F32)}
    metadata = BASE | {"block_count": 1, "shortconv.l_cache": 3}
    spec = read_gguf_file(write(tmp_path / "m.gguf", "lfm2", metadata, tensors))
    assert spec.layers[0].mixers == (
        Recurrent(kind=Recurrence.SHORT_CONV, conv_dim=256, conv_kernel=3),
    )
    tensors = ENDS | {"blk.0.time_mix_key.weight": ((256, 256), Q.Q8_0)}
    metadata = BASE | {"block_count": 1, "wkv.head_size": 64}
    spec = read_gguf_file(write(tmp_path / "m.gguf", "rwkv6", metadata, tensors))
    assert spec.layers[0].mixers == (
        Recurrent(
            kind=Recurrence.RWKV, conv_dim=512, conv_kernel=2, num_heads=4, state_shape=(64, 64)
        ),
    )


def test_multi_token_prediction_blocks(tmp_path: Path) -> None:
    metadata = BASE | {"nextn_predict_layers": 1}
    spec = read_gguf_file(write(tmp_path / "m.gguf", "glm4moe", metadata, dense()))
    assert (spec.num_layers, len(spec.mtp_layers)) == (3, 1)
    assert stored_bytes(spec) == data_bytes(dense())


def test_split_files(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "big.gguf", "llama", split_max_tensors=20)
    for key, value in BASE.items():
        if isinstance(value, int):
            full = key if key.startswith("general.") else f"llama.{key}"
            writer.add_uint32(full, value)
    for name, (shape, kind) in dense().items():
        block, size = GGML_QUANT_SIZES[kind]
        writer.add_tensor(
            name, np.zeros((*shape[:-1], shape[-1] // block * size), np.uint8), raw_dtype=kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    parts = sorted(tmp_path.glob("*.gguf"))
    assert len(parts) == 2
    for part in parts:
        spec = read_gguf_file(part)
        assert spec.name == "big"
        assert stored_bytes(spec) == data_bytes(dense())
    parts[1].rename(tmp_path / "elsewhere.gguf")
    with pytest.raises(ModelError, match="big-00002-of-00002"):
        read_gguf_file(parts[0])
    parts[0].rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelError, match="one of 2 parts"):
        read_gguf_file(tmp_path / "renamed.gguf")


def test_remote_headers_take_few_requests(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.gguf",
        "llama",
        BASE | {"tokenizer.ggml.tokens": [f"token-{index}" for index in range(150_000)]},
        dense(),
    )
    requests: list[int] = []
    inner = open_file(path)

    class Counting:
        name, size_bytes = inner.name, inner.size_bytes

        def read(self, offset: int, length: int) -> bytes:
            requests.append(length)
            return inner.read(offset, length)

    assert read_gguf("m.gguf", lambda _: Counting()).num_layers == 4
    assert len(requests) <= 3


def header(
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    tensors: int = 0,
    keys: int = 0,
    body: bytes = b"",
    tail: int = 0,
) -> BytesReader:
    data = magic + struct.pack("<IQQ", version, tensors, keys) + body + bytes(tail)
    return BytesReader(name="m.gguf", data=data)


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def info(name: str, sizes: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    sizes_bytes = struct.pack(f"<{len(sizes)}Q", *sizes)
    return (
        text(name) + struct.pack("<I", len(sizes)) + sizes_bytes + struct.pack("<IQ", kind, offset)
    )


DAMAGED = {
    "empty": BytesReader(name="m", data=b""),
    "magic only": BytesReader(name="m", data=b"GGUF"),
    "other magic": header(magic=b"GGML"),
    "version 1": header(version=1),
    "version 4": header(version=4),
    "big-endian": header(version=3 << 24),
    "tensors beyond the file": header(tensors=2**60),
    "keys beyond the file": header(keys=2**60),
    "key length beyond the file": header(keys=1, body=struct.pack("<Q", 2**62), tail=64),
    "key of bad text": header(keys=1, body=key(b"\xff", 4, bytes(4))),
    "unknown value type": header(keys=1, body=key("a", 13, bytes(8))),
    "value cut off": header(keys=1, body=key("a", 10, bytes(2)), tail=0),
    "same key twice": header(keys=2, body=2 * key("a", 4, bytes(4))),
    "text beyond the file": header(keys=1, body=key("a", 8, struct.pack("<Q", 2**63))),
    "array beyond the file": header(keys=1, body=key("a", 9, struct.pack("<IQ", 4, 2**62))),
    "texts beyond the file": header(keys=1, body=key("a", 9, struct.pack("<IQ", 8, 2**62))),
    "text in array too long": header(
        keys=1, body=key("a", 9, struct.pack("<IQQ", 8, 1, 2**63)), tail=8
    ),
    "nested arrays": header(keys=1, body=key("a", 9, struct.pack("<IQ", 9, 1)), tail=64),
    "array of unknown type": header(keys=1, body=key("a", 9, struct.pack("<IQ", 99, 1)), tail=64),
    "alignment zero": header(keys=1, body=key("general.alignment", 4, bytes(4))),
    "alignment three": header(keys=1, body=key("general.alignment", 4, b"\3\0\0\0")),
    "alignment text": header(keys=1, body=key("general.alignment", 8, text("32"))),
    "no dimension": header(tensors=1, body=info("t", ()), tail=64),
    "five dimensions": header(tensors=1, body=info("t", (1, 1, 1, 1, 1)), tail=64),
    "many dimensions": header(tensors=1, body=text("t") + struct.pack("<I", 2**32 - 1), tail=64),
    "zero dimension": header(tensors=1, body=info("t", (0, 4)), tail=64),
    "overflowing dimensions": header(tensors=1, body=info("t", (2**33, 2**33, 2**33)), tail=64),
    "unknown ggml type": header(tensors=1, body=info("t", (32,), 99), tail=64),
    "removed ggml type": header(tensors=1, body=info("t", (32,), 31), tail=64),
    "no whole block": header(tensors=1, body=info("t", (33,), 2), tail=64),
    "same tensor twice": header(tensors=2, body=info("t", (4,)) + info("t", (4,), 0, 32), tail=128),
    "misaligned": header(tensors=1, body=info("t", (4,), 0, 16), tail=128),
    "overlap": header(tensors=2, body=info("t", (64,)) + info("u", (4,), 0, 32), tail=512),
    "offset beyond the file": header(tensors=1, body=info("t", (4,), 0, 2**62), tail=64),
    "data cut short": header(tensors=1, body=info("t", (2**20,)), tail=64),
}


@pytest.mark.parametrize("reader", DAMAGED.values(), ids=list(DAMAGED))
def test_damage_is_one_sentence(reader: BytesReader) -> None:
    with pytest.raises(ModelError) as caught:
        read_container(reader)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_every_cut_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "m.gguf", "llama", BASE, dense(1)).read_bytes()
    for length in (*range(0, 4000, 7), len(data) - 4096, len(data) - 100):
        with pytest.raises(ModelError):
            read_container(BytesReader(name="m.gguf", data=data[:length]))


Change = Callable[[dict[str, Any], Tensors], None]


def without(name: str) -> Change:
    def change(metadata: dict[str, Any], tensors: Tensors) -> None:
        metadata.pop(name, None)
        tensors.pop(name, None)

    return change


def having(**values: Any) -> Change:
    def change(metadata: dict[str, Any], tensors: Tensors) -> None:
        metadata.update({name.replace("__", "."): value for name, value in values.items()})

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("block_count"), "has no llama.block_count"),
        (without("attention.head_count"), "has no llama.attention.head_count"),
        (without("embedding_length"), "has no llama.embedding_length"),
        (without("token_embd.weight"), "no token_embd.weight"),
        (having(block_count=0), "must be a whole number"),
        (having(block_count=10**6), "must be a whole number"),
        (having(block_count=5), "no tensor of block 4 of 5"),
        (having(block_count=3), "block 3 but declares 3 blocks"),
        (having(block_count="4"), "must be a whole number"),
        (having(attention__head_count=0), "must be a whole number"),
        (having(attention__head_count_kv=8), "must be a whole number"),
        (having(attention__head_count_kv=[2, 2]), "none for block 2"),
        (having(attention__key_length=32), "attn_k has 128 rows"),
        (having(general__type="adapter"), "not a model"),
        (having(general__type="mmproj"), "projector"),
    ],
)
def test_metadata_that_does_not_fit(tmp_path: Path, change: Change, message: str) -> None:
    metadata, tensors = dict(BASE), dense()
    change(metadata, tensors)
    path = write(tmp_path / "m.gguf", "llama", metadata, tensors)
    with pytest.raises(ModelError, match=message):
        read_gguf_file(path)


def test_files_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(UnknownArchitectureError, match="'wavenet'"):
        read_gguf_file(write(tmp_path / "m.gguf", "wavenet", BASE, dense()))
    with pytest.raises(ModelError, match="projector"):
        read_gguf_file(write(tmp_path / "m.gguf", "clip", BASE, dense()))
    with pytest.raises(ModelError, match="vocabulary"):
        read_gguf_file(write(tmp_path / "m.gguf", "llama", BASE, {}))
    with pytest.raises(ModelError, match=r"general\.architecture"):
        read_gguf("m.gguf", lambda _: header())
    with pytest.raises(ModelError, match="there is no file"):
        read_gguf_file(tmp_path / "missing.gguf")


def test_mixers_keep_their_place_in_a_kind(tmp_path: Path) -> None:
    spec = read_gguf_file(write(tmp_path / "m.gguf", "llama", BASE, dense()))
    assert all(layer is spec.layers[0] for layer in spec.layers)
    assert replace(spec).layer_kinds[0][1] == 4
