"""Defaults by card, version and settings against SGLang's own code (scripts/oracle_sglang.py)."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tokenroom.engines.sglang.defaults import memory_mib, resolve
from tokenroom.engines.sglang.memory_defaults import MemoryRequest, memory_defaults
from tokenroom.engines.sglang.prefill_graphs import PrefillGraphInputs, captures_prefill
from tokenroom.engines.sglang.rules import VersionRules, rules_for, version_numbers
from tokenroom.engines.sglang.settings import SGLangSettings
from tokenroom.errors import DeploymentError
from tokenroom.hardware.accelerator import Node
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.models.resolve import load_model

_RECORD = Path(__file__).parent.parent / "fixtures" / "sglang_fractions.json.gz"


def _request(card: int, given: dict[str, Any], rules: VersionRules) -> MemoryRequest:
    dp = given.get("dp_size", 1)
    vision = given.get("vision")
    sizes = given.get("cuda_graph_bs")
    return MemoryRequest(
        memory_mib=card,
        tp_size=given.get("tp_size", 1),
        pp_size=given.get("pp_size", 1),
        dp_size=dp,
        attention_dp_size=dp if given.get("enable_dp_attention") else 1,
        chunked_prefill_size=given.get("chunked_prefill_size"),
        max_prefill_tokens=given.get("max_prefill_tokens", 16384),
        max_total_tokens=given.get("max_total_tokens"),
        max_running_requests=given.get("max_running_requests"),
        decode_graphs=given.get("decode_graphs", True),
        decode_max_bs=given.get("cuda_graph_max_bs"),
        decode_bs=tuple(sizes) if sizes else None,
        padding=not given.get("disable_cuda_graph_padding", False),
        prefill_graphs=given.get("prefill_graphs", rules.prefill_graphs_by_default),
        latent=given.get("latent", False),
        speculative_algorithm=given.get("speculative_algorithm"),
        draft_tokens=given.get("speculative_num_draft_tokens"),
        disaggregation_mode=given.get("disaggregation_mode", "null"),
        deepep=given.get("moe_a2a_backend") == "deepep",
        vision=vision is not None,
        vision_layers=vision[0] if vision else None,
        vision_width=vision[1] if vision else None,
    )


def test_defaults_are_those_of_33_versions_own_code() -> None:
    """Every version, 12 sizes of card, 30 settings: exact."""
    record = json.loads(gzip.decompress(_RECORD.read_bytes()))
    cases = list(itertools.product(record["cards"], record["settings"]))
    versions = 0
    for table in record["tables"]:
        for version in table["versions"]:
            versions += 1
            rules = rules_for(version)
            for (card, given), expected in zip(cases, table["rows"], strict=True):
                found = memory_defaults(_request(card, given, rules), rules)
                wanted = dict(zip(record["fields"], expected, strict=True))
                where = (version, card, given)
                assert found.mem_fraction_static == wanted["mem_fraction_static"], where
                assert found.chunked_prefill_size == wanted["chunked_prefill_size"], where
                assert found.decode_max_bs == wanted["cuda_graph_max_bs"], where
                for name, sizes in (
                    ("decode_graphs", found.decode_bs),
                    ("prefill_graphs", found.prefill_tokens),
                ):
                    if wanted[name] is not None:
                        assert len(sizes) == wanted[name], where
    assert versions >= 33


def _resolved(model: str, gpu: str, **given: Any) -> Any:
    accelerator = find_accelerator(gpu)
    settings = SGLangSettings(**given)
    return resolve(settings, load_model(model), Node(accelerator=accelerator, count=8))


def test_the_card_is_counted_as_the_driver_reports_it() -> None:
    assert memory_mib(find_accelerator("h100")) == 81559
    assert memory_mib(find_accelerator("b200")) == 183359


def test_origins_say_who_decided() -> None:
    resolved = _resolved("llama-3.1-8b", "h100", tp_size=2)
    assert resolved.settings["tensor_parallel_size"].origin == "user"
    assert resolved.settings["mem_fraction_static"].origin == "gpu"
    assert resolved.settings["context_length"].origin == "model"
    assert resolved.attention_backend == "fa3"
    assert resolved.page_size == 1


def test_sparse_attention_pages_by_64_and_chooses_its_type_by_gpu() -> None:
    hopper = _resolved("deepseek-ai/DeepSeek-V3.2-Exp", "h200", tp_size=8)
    blackwell = _resolved("deepseek-ai/DeepSeek-V3.2-Exp", "b200", tp_size=8)
    assert (hopper.page_size, hopper.kv_cache_dtype) == (64, "bfloat16")
    assert (blackwell.page_size, blackwell.kv_cache_dtype) == (64, "fp8_e4m3")
    assert blackwell.raw_latents


def test_dp_attention_divides_the_chunk_not_the_reserve() -> None:
    plain = _resolved("deepseek-r1", "h200", tp_size=8)
    copies = _resolved("deepseek-r1", "h200", tp_size=8, dp_size=8, enable_dp_attention=True)
    assert plain.chunked_prefill_size == 8192
    assert copies.chunked_prefill_size == 1024
    assert copies.attention_tp_size == 1
    assert copies.replicas == 1
    assert copies.mem_fraction_static < plain.mem_fraction_static


def test_drafting_limits_requests_and_counts_a_branch() -> None:
    resolved = _resolved("deepseek-r1", "h200", tp_size=8, speculative_algorithm="NEXTN")
    assert resolved.speculative_algorithm == "EAGLE"
    assert resolved.max_running_requests == 48
    assert (resolved.draft_steps, resolved.draft_topk, resolved.draft_tokens) == (3, 1, 4)


@pytest.mark.parametrize(
    ("version", "model", "captured"),
    [
        ("0.5.9", "llama-3.1-8b", False),
        ("0.5.10", "llama-3.1-8b", True),
        ("0.5.12", "deepseek-ai/DeepSeek-V3.2-Exp", False),
        ("0.5.17", "deepseek-r1", False),
        ("0.5.23", "deepseek-r1", True),
        ("0.5.23", "google/gemma-3-4b-it", False),
    ],
)
def test_prefill_graphs_depend_on_version_and_model(
    version: str, model: str, captured: bool
) -> None:
    spec = load_model(model)
    inputs = PrefillGraphInputs(asked=None, multimodal=bool(spec.towers))
    assert captures_prefill(spec, inputs, rules_for(version)) is captured


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tp_size": 4, "dp_size": 3, "enable_dp_attention": True}, "does not divide tp_size 4"),
        ({"tp_size": 8, "ep_size": 3}, "ep_size is 3"),
        ({"context_length": 10**7}, "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"),
        ({"kv_cache_dtype": "int3"}, "kv_cache_dtype is 'int3'"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"swa_full_tokens_ratio": 2.0}, "swa_full_tokens_ratio"),
        ({"chunked_prefill_size": 10**6}, "reserve"),
    ],
)
def test_what_the_engine_refuses_is_said_in_one_sentence(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DeploymentError, match=sentence) as caught:
        _resolved("llama-3.1-8b", "h100", **given)
    assert "\n" not in str(caught.value)


def test_versions_are_ordered_by_their_numbers() -> None:
    assert version_numbers("0.4.8.post1") > version_numbers("0.4.8")
    assert version_numbers("0.5.10") > version_numbers("0.5.9")
    assert version_numbers("0.5.24.dev3+gabc123") > version_numbers("0.5.23")
