"""A container or manifest that is written starts the deployment it was written for."""

from typing import Any

import pytest
import yaml

from tokenroom import fit
from tokenroom.engines.artefacts import container
from tokenroom.engines.registry import chosen_start, command_parser
from tokenroom.engines.vllm.settings import SpeculativeSettings
from tokenroom.fitting import FitResult

TUNED: dict[str, Any] = {"max_num_seqs": 128, "util": 0.85}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("vllm", {}),
    ("vllm", {"gpus": 4, "kv": "fp8", "max_num_batched_tokens": 4096}),
    ("vllm@0.11.0", {"gpus": 2, "pp": 2}),
    ("sglang", {"gpus": 2, "chunked_prefill_size": 2048}),
    ("tensorrt-llm", {"gpus": 2, "kv": "fp8"}),
    ("llama.cpp", {}),
    ("llama.cpp", {"gpus": 2, "kv": "q8_0", "n_parallel": 4, "n_ubatch": 1024}),
    # what a plan may choose
    ("vllm", TUNED | {"max_num_batched_tokens": 2048, "enable_prefix_caching": False}),
    ("vllm", TUNED | {"kv_offload_bytes": 64 << 30, "enable_prefix_caching": True}),
    ("vllm", {"speculative": SpeculativeSettings(method="ngram", num_speculative_tokens=3)}),
    ("sglang", TUNED | {"disable_radix_cache": True}),
    ("sglang", {"enable_hierarchical_cache": True, "hicache_size_bytes": 64 * 10**9}),
    ("tensorrt-llm", TUNED | {"enable_block_reuse": False, "kv_offload_bytes": 64 << 30}),
]


def read_back(text: str, result: FitResult) -> FitResult:
    engine, chosen = chosen_start(text, {}, service=None, engine=None)
    parsed = command_parser(engine)(chosen, environment={}, allow_files=False, version=None)
    node = result.deployment.node
    assert parsed.gpus in (None, node.count)
    model = parsed.model
    if engine == "llama.cpp":  # a file that is made of the checkpoint first
        assert str(model).endswith(".gguf")
        model = result.deployment.spec
    return fit(model, node, engine=engine, settings=parsed.settings)


@pytest.mark.parametrize(("engine", "settings"), CASES)
def test_what_is_written_gives_the_same_ledger(engine: str, settings: dict[str, Any]) -> None:
    result = fit("llama-3.1-8b", "h100", engine=engine, context=8192, **settings)
    assert result.launch is not None
    written = container(result.deployment, result.launch)
    assert written is not None
    for text in (written.docker_text, written.kubernetes_text(3)):
        again = read_back(text, result)
        assert again.plan.stages == result.plan.stages
        assert again.plan.kv_pool_tokens == result.plan.kv_pool_tokens


def test_a_manifest_asks_for_the_gpus_of_each_replica() -> None:
    result = fit("llama-3.1-8b", "h100", gpus=2)
    assert result.launch is not None
    written = container(result.deployment, result.launch)
    assert written is not None
    deployment, service = yaml.safe_load_all(written.kubernetes_text(5))
    pod = deployment["spec"]["template"]
    assert deployment["spec"]["replicas"] == 5
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    assert "&id" not in written.kubernetes_text(5)


@pytest.mark.parametrize(
    ("gpu", "settings"),
    [
        ("tpu-7x", {}),  # no image of vLLM for it is known
        ("h100", {"gpus": 16, "tp": 8, "pp": 2}),  # two hosts
    ],
)
def test_what_no_container_is_published_for_has_none(gpu: str, settings: dict[str, Any]) -> None:
    result = fit("llama-3.1-8b", gpu, **settings)
    assert result.launch is not None
    assert container(result.deployment, result.launch) is None


def test_amd_gpus_are_given_as_devices() -> None:
    result = fit("llama-3.1-8b", "mi300x")
    assert result.launch is not None
    written = container(result.deployment, result.launch)
    assert written is not None
    assert "--device /dev/kfd" in written.docker_text
    assert "amd.com/gpu" in written.kubernetes_text()


def test_the_token_of_gated_models_is_a_secret() -> None:
    result = fit("llama-3.1-8b", "h100")
    assert result.launch is not None
    written = container(result.deployment, result.launch)
    assert written is not None
    deployment, _ = yaml.safe_load_all(written.kubernetes_text())
    (variable,) = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    assert variable["name"] == "HF_TOKEN"
    assert variable["valueFrom"]["secretKeyRef"]["optional"] is True
    assert "-e HF_TOKEN " in written.docker_text


def test_names_of_several_deployments_differ() -> None:
    result = fit("llama-3.1-8b", "h100")
    assert result.launch is not None
    names = set()
    for label in ("1-h100-sxm-80gb", "2-h100-sxm-80gb"):
        written = container(result.deployment, result.launch, label=label)
        assert written is not None
        documents = list(yaml.safe_load_all(written.kubernetes_text()))
        names |= {document["metadata"]["name"] for document in documents}
        assert written.name.endswith(label)
        assert len(written.name) <= 50
    assert len(names) == 2
