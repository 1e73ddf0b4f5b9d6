"""What both fuzzers share: small valid files, and what a parser may do with any bytes.

The property tests run it on every change; ``scripts/fuzz_headers.py`` runs it for hours.
"""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable
from typing import Final

from tokenroom.errors import ModelError
from tokenroom.models.gguf import read_gguf
from tokenroom.models.ranges import BytesReader
from tokenroom.models.safetensors import parse_index, read_header

#: Fixed cost (compiled patterns, first window), and bytes allowed for each byte of input: a tensor
#: of a few dozen bytes becomes an object of a few hundred.
FIXED_BYTES: Final = 2**20
BYTES_PER_BYTE: Final = 40


def read_safetensors_bytes(data: bytes) -> None:
    read_header(BytesReader(name="model.safetensors", data=data))


def read_gguf_bytes(data: bytes) -> None:
    read_gguf("model.gguf", lambda name: BytesReader(name=name, data=data))


def read_index_bytes(data: bytes) -> None:
    parse_index(data, "model.safetensors.index.json")


PARSERS: Final[dict[str, Callable[[bytes], None]]] = {
    "safetensors": read_safetensors_bytes,
    "gguf": read_gguf_bytes,
    "index": read_index_bytes,
}


def check(parser: str, data: bytes) -> bool:
    """Whether the parser accepted the bytes; anything but a ModelError of one sentence escapes."""
    try:
        PARSERS[parser](data)
    except ModelError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 1000
        return False
    return True


def check_memory(parser: str, data: bytes) -> None:
    """As :func:`check`, and memory stays in proportion to the input, whatever it declares."""
    tracemalloc.start()
    try:
        check(parser, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < FIXED_BYTES + BYTES_PER_BYTE * len(data)


def valid_safetensors() -> bytes:
    header = {
        "__metadata__": {"format": "pt"},
        "model.embed_tokens.weight": {"dtype": "BF16", "shape": [8, 4], "data_offsets": [0, 64]},
        "model.layers.0.w.weight": {"dtype": "F8_E4M3", "shape": [4, 4], "data_offsets": [64, 80]},
        "lm_head.scale": {"dtype": "F32", "shape": [], "data_offsets": [80, 84]},
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(84)


def valid_index() -> bytes:
    files = {f"layer.{index}": f"model-0000{index}-of-00002.safetensors" for index in (1, 2)}
    return json.dumps({"metadata": {"total_size": 84}, "weight_map": files}).encode()


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def valid_gguf() -> bytes:
    numbers = {
        "block_count": 2,
        "context_length": 64,
        "embedding_length": 32,
        "attention.head_count": 2,
        "expert_used_count": 1,
    }
    body = _text("general.architecture") + struct.pack("<I", 8) + _text("llama")
    for key, value in numbers.items():
        body += _text(f"llama.{key}") + struct.pack("<II", 4, value)
    body += _text("llama.attention.head_count_kv") + struct.pack("<IIQII", 9, 4, 2, 1, 1)
    body += _text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + _text("a") + _text("b")
    tensors = {"token_embd.weight": (32, 8), "output_norm.weight": (32,)}
    for block in range(2):
        tensors[f"blk.{block}.attn_q.weight"] = (32, 32)
        tensors[f"blk.{block}.attn_k.weight"] = (32, 16)
        tensors[f"blk.{block}.ffn_down_exps.weight"] = (32, 32, 2)
    offset = 0
    for name, sizes in tensors.items():
        body += _text(name) + struct.pack("<I", len(sizes))
        body += struct.pack(f"<{len(sizes)}QIQ", *sizes, 8, offset)
        count = 1
        for size in sizes:
            count *= size
        offset += -(-count // 32 * 34 // 32) * 32
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(numbers) + 3) + body
    return header + bytes(-len(header) % 32) + bytes(offset)


VALID: Final[dict[str, Callable[[], bytes]]] = {
    "safetensors": valid_safetensors,
    "gguf": valid_gguf,
    "index": valid_index,
}
