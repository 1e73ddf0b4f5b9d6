import pytest

from tokenroom import load_model
from tokenroom.errors import DeploymentError
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.planning.candidates import Candidate, candidates, in_each_layout


def divisions(model: str, gpu: str, **asked: int) -> list[str]:
    found = candidates([load_model(model)], [find_accelerator(gpu)], **asked)  # type: ignore[arg-type]
    return [each.division for each in found]


def test_layers_are_divided_in_a_host_and_stages_over_hosts() -> None:
    assert divisions("llama-3.1-8b", "h100") == ["", "TP2", "TP4", "TP8"]
    assert divisions("llama-3.1-8b", "h100", most_gpus=16)[-1] == "TP8 PP2"


def test_cards_on_pcie_also_have_stages() -> None:
    assert divisions("llama-3.1-8b", "l40s", most_gpus=4) == ["", "TP2", "PP2", "TP4", "TP2 PP2"]


def test_experts_and_latent_attention_are_divided_their_own_way() -> None:
    assert divisions("qwen3-30b-a3b", "h100", most_gpus=2) == ["", "TP2", "TP2 EP"]
    assert divisions("deepseek-v2-lite", "h100", most_gpus=2) == ["", "TP2", "TP2 EP", "DP2 EP"]


def test_too_few_gpus_for_the_weights_are_left_out() -> None:
    spec, gpu = load_model("llama-3.1-70b"), find_accelerator("h100")
    found = list(candidates([spec], [gpu]))
    assert min(each.gpus for each in found) == 2
    assert checkpoint_weights(spec).total_bytes > gpu.memory_bytes


def test_every_choice_is_combined() -> None:
    spec, gpu = load_model("llama-3.1-8b"), find_accelerator("h100")
    found = list(
        candidates([spec], [gpu], engines=["vllm", "sglang"], kv_types=[None, "fp8"], most_gpus=1)
    )
    assert [(each.engine, each.kv) for each in found] == [
        ("vllm", None),
        ("vllm", "fp8"),
        ("sglang", None),
        ("sglang", "fp8"),
    ]
    assert all(isinstance(each, Candidate) and each.gpus == 1 for each in found)


def test_an_unknown_engine_is_refused_before_anything_is_tried() -> None:
    with pytest.raises(DeploymentError, match="'foo'"):
        list(candidates([], [], engines=["vllm", "foo"]))


def test_a_layout_is_named_once() -> None:
    assert in_each_layout(["a", "b"], ["fp8"]) == ["a@fp8", "b@fp8"]
    assert in_each_layout(["a@fp8"], []) == ["a@fp8"]
    with pytest.raises(DeploymentError, match="give one of them"):
        in_each_layout(["a@fp8"], ["awq"])
