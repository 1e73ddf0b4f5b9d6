"""Where llama.cpp puts tensors and caches, what --fit does, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tokenroom.engines.llama_cpp.memory import Memory
from tokenroom.engines.llama_cpp.policy import LLAMA_CPP, LlamaCppPlan
from tokenroom.engines.llama_cpp.settings import LlamaCppSettings
from tokenroom.errors import DeploymentError
from tokenroom.hardware.accelerator import Node
from tokenroom.hardware.catalogue import find_accelerator as find
from tokenroom.models.quantization.hypothetical import what_if
from tokenroom.models.resolve import load_model
from tokenroom.models.spec import ModelSpec
from tokenroom.units import MIB


@cache
def model(name: str, weights: str = "q4_k_m") -> ModelSpec:
    return what_if(load_model(name), weights)


def planned(name: str, gpu: str = "4090", count: int = 1, **settings: Any) -> LlamaCppPlan:
    node = Node(accelerator=find(gpu), count=count)
    settings.setdefault("gpus", count)
    deployment = LLAMA_CPP.deploy(model(name), node, LlamaCppSettings(**settings))
    return LLAMA_CPP.plan(deployment)


def memory(name: str, gpu: str = "4090", count: int = 1, **settings: Any) -> Memory:
    settings.setdefault("n_ctx", 4096)
    return planned(name, gpu, count, **settings).memory


def on_gpu(placed: Memory) -> list[int]:
    return [index for index, device in enumerate(placed.placement.layer_devices) if device == 0]


class TestLayers:
    @pytest.mark.parametrize(
        ("asked", "blocks", "output"),
        [
            (0, [], False),
            (1, [], True),  # the output layer counts as one
            (3, [30, 31], True),
            (32, list(range(1, 32)), True),
            (33, list(range(32)), True),
            (99, list(range(32)), True),
        ],
    )
    def test_the_last_go_first(self, asked: int, blocks: list[int], output: bool) -> None:
        placed = memory("llama-3.1-8b", n_gpu_layers=asked)
        assert on_gpu(placed) == blocks
        assert (placed.placement.output_device == 0) is output
        assert placed.placement.weights[placed.host]["embedding"] > 0

    def test_caches_follow_their_layers(self) -> None:
        placed = memory("llama-3.1-8b", n_gpu_layers=9)
        assert placed.kv_bytes[0] * 3 == placed.kv_bytes[1]
        stays = memory("llama-3.1-8b", n_gpu_layers=9, kv_offload=False)
        assert stays.kv_bytes == (0, sum(placed.kv_bytes))

    def test_a_tied_embedding_is_copied(self) -> None:
        placed = memory("llama-3.2-1b", n_gpu_layers=99)
        head = placed.placement.weights[0]["head"]
        assert head == placed.placement.weights[1]["embedding"] > 0

    def test_the_cpu_alone(self) -> None:
        placed = memory("llama-3.1-8b", gpus=0)
        assert len(placed.backends) == 0
        assert placed.kv_bytes == (4096 * 32 * 2 * 1024 * 2,)

    def test_unified_memory(self) -> None:
        placed = memory("llama-3.1-8b", gpu="m3-max")
        assert placed.backends[0].name.startswith("MTL")
        assert len(on_gpu(placed)) == 32


class TestSeveral:
    def test_shares(self) -> None:
        placed = memory("llama-3.1-8b", count=2, tensor_split=(3.0, 1.0), n_gpu_layers=99)
        devices = placed.placement.layer_devices
        assert [devices[:32].count(device) for device in (0, 1)] == [25, 7]
        assert placed.placement.output_device == 1
        assert placed.copies == 4  # in turn, with copies of the inputs

    def test_one_of_them(self) -> None:
        placed = memory("llama-3.1-8b", count=2, split_mode="none", main_gpu=1, n_gpu_layers=99)
        assert len(placed.backends) == 1

    def test_rows(self) -> None:
        placed = memory("llama-3.1-8b", count=2, split_mode="row", n_gpu_layers=99)
        first, second = (sum(parts.values()) for parts in placed.placement.weights[:2])
        assert abs(first - second) < 0.05 * first
        assert placed.copies == 1

    def test_more_than_there_are(self) -> None:
        with pytest.raises(DeploymentError, match="gpus is 3 and there are 2"):
            LLAMA_CPP.place(find("4090"), 2, LlamaCppSettings(gpus=3))


class TestOverrides:
    def host_blocks(self, placed: Memory, stem: str) -> list[int]:
        return [
            index
            for index in range(len(placed.tensors.blocks))
            if placed.placement.device_of(index, stem) == placed.host
        ]

    def test_experts_of_the_first_blocks(self) -> None:
        placed = memory("qwen3-30b-a3b", n_gpu_layers=99, n_cpu_moe=30)
        assert self.host_blocks(placed, "ffn_down_exps") == list(range(30))
        assert self.host_blocks(placed, "attn_q") == []

    def test_all_experts(self) -> None:
        placed = memory("qwen3-30b-a3b", n_gpu_layers=99, cpu_moe=True)
        assert self.host_blocks(placed, "ffn_up_exps") == list(range(48))
        plan = planned("qwen3-30b-a3b", n_ctx=4096, n_gpu_layers=99, cpu_moe=True)
        assert plan.remarks[0].key == "placement_experts_on_cpu"

    def test_a_pattern(self) -> None:
        pattern = (r"blk\.([0-4])\.ffn_.*_exps", "CPU")
        placed = memory("qwen3-30b-a3b", n_gpu_layers=99, override_tensor=(pattern,))
        assert self.host_blocks(placed, "ffn_gate_exps") == [0, 1, 2, 3, 4]
        assert self.host_blocks(placed, "ffn_gate_inp") == []

    def test_another_gpu(self) -> None:
        placed = memory(
            "qwen3-30b-a3b", count=2, n_gpu_layers=99, override_tensor=(("exps", "CUDA1"),)
        )
        assert {placed.placement.device_of(i, "ffn_up_exps") for i in range(48)} == {1}

    @pytest.mark.parametrize(
        ("pair", "sentence"),
        [(("exps", "CUDA7"), "CUDA7"), (("exps", "disk"), "disk"), (("ex(ps", "CPU"), "ex\\(ps")],
    )
    def test_what_is_refused(self, pair: tuple[str, str], sentence: str) -> None:
        with pytest.raises(DeploymentError, match=sentence):
            memory("qwen3-30b-a3b", override_tensor=(pair,))


class TestCaches:
    @pytest.mark.parametrize(
        ("asked", "cells"), [(1, 256), (256, 256), (257, 512), (3000, 3072), (0, 131072)]
    )
    def test_cells_are_padded(self, asked: int, cells: int) -> None:
        placed = memory("llama-3.1-8b", n_ctx=asked, n_parallel=1, gpus=0)
        assert placed.caches.cells == cells

    def test_slots_share_the_cells_unless_told(self) -> None:
        shared = planned("llama-3.1-8b", n_ctx=8192)
        assert (shared.max_num_seqs, shared.max_model_len) == (4, 8192)
        own = planned("llama-3.1-8b", n_ctx=8192, n_parallel=4)
        assert (own.max_num_seqs, own.max_model_len) == (4, 2048)
        assert own.memory.kv_bytes == shared.memory.kv_bytes

    @pytest.mark.parametrize(
        ("kind", "bits"),
        [
            *(("f32", 32), ("f16", 16), ("bf16", 16), ("q8_0", 8.5), ("q5_1", 6), ("q5_0", 5.5)),
            *(("q4_1", 5), ("q4_0", 4.5), ("iq4_nl", 4.5)),
        ],
    )
    def test_types(self, kind: str, bits: float) -> None:
        placed = memory("llama-3.1-8b", type_k=kind, type_v=kind, n_gpu_layers=99)
        assert sum(placed.kv_bytes) == 4096 * 32 * 2 * 1024 * bits / 8

    def test_a_quantised_v_needs_flash_attention(self) -> None:
        with pytest.raises(DeploymentError, match="flash attention off"):
            memory("llama-3.1-8b", type_v="q8_0", flash_attn="off")
        memory("llama-3.1-8b", type_k="q8_0", flash_attn="off")

    def test_windows(self) -> None:
        placed = memory("gemma-3-27b-it", n_ctx=32768, n_parallel=1)
        assert {cache.cells for cache in placed.caches.layers} == {32768, 1536}  # 1024 + 512
        whole = memory("gemma-3-27b-it", n_ctx=32768, n_parallel=1, swa_full=True)
        assert {cache.cells for cache in whole.caches.layers} == {32768}

    def test_latents_have_no_values(self) -> None:
        placed = memory("deepseek-v2-lite", n_parallel=1)
        assert sum(placed.kv_bytes) == 27 * 4096 * 576 * 2

    def test_states_do_not_grow(self) -> None:
        short, long = (
            memory("qwen3-next-80b-a3b-instruct", n_ctx=n_ctx, n_parallel=1, gpus=0)
            for n_ctx in (4096, 8192)
        )
        states = [
            sum(c.num_bytes for c in placed.caches.layers if c.kind == "recurrent")
            for placed in (short, long)
        ]
        assert states[0] == states[1] > 0
        assert (sum(long.kv_bytes) - states[0]) == 2 * (sum(short.kv_bytes) - states[0])


class TestFit:
    @pytest.mark.parametrize(
        ("name", "gpu", "count"),
        [("llama-3.1-70b", "4090", 1), ("qwen3-30b-a3b", "3060", 1), ("qwen3-32b", "3060", 2)],
    )
    def test_the_margin_stays_free(self, name: str, gpu: str, count: int) -> None:
        plan = planned(name, gpu, count, n_ctx=16384)
        assert plan.refusal is None
        placed = plan.memory
        free = [
            stage.total_bytes - stage.context_bytes - placed.total_of(device)
            for device, stage in enumerate(plan.stages[:-1])
        ]
        assert all(left >= 1024 * MIB for left in free)
        assert min(free) < 2300 * MIB  # and little more than needed

    def test_the_context_is_shortened_first(self) -> None:
        plan = planned("llama-3.1-8b", "3060")
        assert plan.deployment.settings["n_ctx"].reason == "by --fit"
        assert 4096 <= plan.max_model_len < 131072
        assert plan.max_model_len % 256 == 0
        assert len(on_gpu(plan.memory)) == 32

    def test_but_not_below_its_least(self) -> None:
        plan = planned("llama-3.1-70b", "3060")
        assert plan.max_model_len == 4096
        assert len(on_gpu(plan.memory)) < 80

    def test_what_is_set_is_kept(self) -> None:
        plan = planned("llama-3.1-70b", n_gpu_layers=99, n_ctx=4096)
        assert plan.refusal is not None
        assert plan.refusal.cause == "weights_too_big"
        off = planned("llama-3.1-70b", fit=False, n_ctx=4096)
        assert off.refusal is not None

    def test_the_margin_can_be_set(self) -> None:
        wide, narrow = (
            planned("llama-3.1-70b", n_ctx=4096, fit_target_mib=(target,)).memory
            for target in (4096, 256)
        )
        assert len(on_gpu(wide)) < len(on_gpu(narrow))


class TestVerdicts:
    @pytest.mark.parametrize(
        ("settings", "cause"),
        [
            ({"n_ctx": 131072, "n_gpu_layers": 99}, "kv_buffer"),
            ({"n_ctx": 4096, "n_gpu_layers": 99, "n_ubatch": 65536, "n_batch": 65536}, None),
        ],
    )
    def test_what_does_not_fit(self, settings: dict[str, Any], cause: str | None) -> None:
        plan = planned("llama-3.1-8b", "3060", **settings)
        assert (plan.refusal.cause if plan.refusal else None) == cause

    def test_host_memory(self) -> None:
        plan = planned("llama-3.1-70b", gpus=0, n_ctx=131072, host_memory_bytes=32 * 2**30)
        assert plan.refusal is not None
        assert plan.refusal.cause == "host_memory"

    def test_mapped_weights_may_be_read_again_and_again(self) -> None:
        settings: dict[str, Any] = {
            "gpus": 0,
            "n_ctx": 4096,
            "repack": False,
            "host_memory_bytes": 16 * 2**30,
        }
        mapped = planned("llama-3.1-70b", load_mode="mmap", **settings)
        assert mapped.refusal is None
        assert "paged_from_disk" in [notice.key for notice in mapped.notices]
        assert planned("llama-3.1-70b", load_mode="none", **settings).refusal is not None

    @pytest.mark.parametrize(
        ("settings", "speed"),
        [
            ({"n_gpu_layers": 99}, "all_gpu"),
            ({"n_gpu_layers": 28}, "mostly_gpu"),
            ({"n_gpu_layers": 10}, "cpu_bound"),
            ({"gpus": 0}, "cpu_only"),
        ],
    )
    def test_speed(self, settings: dict[str, Any], speed: str) -> None:
        plan = planned("llama-3.1-8b", n_ctx=4096, **settings)
        assert plan.remarks[0].key == f"placement_{speed}"

    def test_the_longest_context_is_the_longest(self) -> None:
        settings: dict[str, Any] = {
            "n_gpu_layers": 99,
            "n_parallel": 1,
            "type_k": "f32",
            "type_v": "f32",
        }
        longest = planned("llama-3.1-8b", n_ctx=4096, **settings).max_model_len_that_fits()
        assert planned("llama-3.1-8b", n_ctx=longest, **settings).refusal is None
        assert planned("llama-3.1-8b", n_ctx=longest + 256, **settings).refusal is not None

    @pytest.mark.parametrize(
        ("settings", "sentence"),
        [
            ({"n_ctx": -1}, "n_ctx is -1"),
            ({"n_batch": 0}, "n_batch is 0"),
            ({"split_mode": "tensor"}, "tensor is experimental"),
            ({"type_k": "q2_k"}, "type_k is 'q2_k'"),
            ({"flash_attn": "maybe"}, "flash_attn is 'maybe'"),
            ({"n_parallel": 0}, "n_parallel is 0"),
            ({"main_gpu": 4, "split_mode": "none"}, "main_gpu is 4"),
            ({"tensor_split": (1.0, 1.0, 1.0)}, "tensor_split"),
        ],
    )
    def test_bad_settings(self, settings: dict[str, Any], sentence: str) -> None:
        with pytest.raises(DeploymentError, match=sentence):
            planned("llama-3.1-8b", **settings)

    def test_encoder_decoder_models(self) -> None:
        spec = load_model("llama-3.1-8b")
        both = replace(spec, encoder_layers=spec.layers[:1])
        with pytest.raises(DeploymentError, match="encoder-decoder"):
            LLAMA_CPP.deploy(both, Node(accelerator=find("4090")), LlamaCppSettings())
