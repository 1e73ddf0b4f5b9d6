"""Quantised weights that tensor parallelism may not cut."""

from __future__ import annotations

import pytest

from tokenroom.engines.vllm.shards import Cut, uneven_shard
from tokenroom.errors import DeploymentError
from tokenroom.fitting import fit
from tokenroom.models.catalogue import find

_BLOCKS = "Qwen/Qwen3-235B-A22B-FP8"


def _cut(
    tensor: int,
    version: tuple[int, int, int] = (0, 19, 0),
    *,
    dtype: str = "bfloat16",
    capability: tuple[int, int] | None = (8, 0),
    expert_parallel: bool = False,
    names_moe_backend: bool = False,
) -> Cut:
    return Cut(
        version=version,
        tensor=tensor,
        expert_ranks=tensor,
        expert_parallel=expert_parallel,
        dtype=dtype,
        capability=capability,
        names_moe_backend=names_moe_backend,
    )


@pytest.mark.parametrize(
    ("model", "sizes", "held"),
    [
        (_BLOCKS, "4 or 2 or 1", 192),
        ("Qwen/Qwen3-30B-A3B-FP8", "2 or 1", 96),
        ("MiniMaxAI/MiniMax-M2", "4 or 2 or 1", 192),
    ],
)
def test_experts_are_not_cut_within_a_block(model: str, sizes: str, held: int) -> None:
    sentence = uneven_shard(find(model), _cut(8))
    assert sentence is not None
    assert f"leaves {held} of an expert's" in sentence
    assert f"tensor_parallel_size {sizes}" in sentence
    assert "--enable-expert-parallel" in sentence
    assert uneven_shard(find(model), _cut(2)) is None
    assert uneven_shard(find(model), _cut(8, expert_parallel=True)) is None


def test_newer_versions_refine_the_blocks_where_the_card_computes_in_fp8() -> None:
    spec = find(_BLOCKS)
    assert uneven_shard(spec, _cut(8, (0, 28, 0), capability=(9, 0))) is not None
    assert uneven_shard(spec, _cut(8, (0, 29, 0), capability=(9, 0))) is None
    assert uneven_shard(spec, _cut(8, (0, 29, 0), capability=(8, 0))) is not None
    assert uneven_shard(spec, _cut(8, (0, 31, 0), names_moe_backend=True)) is None


def test_linear_layers_are_not_cut_within_a_block() -> None:
    spec = find("deepseek-ai/DeepSeek-V3")
    assert uneven_shard(spec, _cut(16)) is None
    older = uneven_shard(spec, _cut(32, (0, 11, 0)))
    newer = uneven_shard(spec, _cut(32, (0, 33, 0)))
    assert older is not None
    assert "outputs of mlp.gate_proj" in older
    assert newer is not None
    assert "inputs of mlp.down_proj" in newer


def test_awq_groups_stay_whole() -> None:
    spec = find("Qwen/Qwen2.5-14B-Instruct-AWQ")
    for version in ((0, 6, 6), (0, 11, 0), (0, 33, 0)):
        sentence = uneven_shard(spec, _cut(8, version))
        assert sentence is not None
        assert "1728 of 13824 inputs of mlp.down_proj" in sentence
        assert uneven_shard(spec, _cut(4, version)) is None


def test_the_deployment_is_refused() -> None:
    with pytest.raises(DeploymentError, match="multiple of the FP8 block of 128"):
        fit(_BLOCKS, "8xH100", engine="vllm@0.19.0")
    with pytest.raises(DeploymentError, match="multiple of the FP8 block of 128"):
        fit(_BLOCKS, "8xmi300x", engine="vllm@0.19.0")
    fit(_BLOCKS, "8xH100", engine="vllm@0.19.0", ep=True)
    fit(_BLOCKS, "8xH100", engine="vllm@0.33.0")
    # Data parallelism divides the experts too.
    with pytest.raises(DeploymentError, match="192 of an expert's 1536"):
        fit(_BLOCKS, "8xH100", engine="vllm@0.19.0", tp=4, dp=2)
