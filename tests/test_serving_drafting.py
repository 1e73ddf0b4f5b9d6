"""How each engine's own settings of speculative decoding reach the step-time model."""

import json
from pathlib import Path

import pytest
from tests.performance.test_drafting import HEAD

from tokenroom.engines.vllm.settings import SpeculativeSettings
from tokenroom.errors import DeploymentError
from tokenroom.performance.drafting import Drafting
from tokenroom.serving_speed import speed


@pytest.fixture
def head(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(HEAD))
    return str(tmp_path)


def drafting(model: str = "llama-3.1-8b", **given: object) -> Drafting | None:
    return speed(model, "h200", **given).terms.drafting  # type: ignore[arg-type]


def test_vllm(head: str) -> None:
    config = SpeculativeSettings(method="eagle3", num_speculative_tokens=3, model=head)
    found = drafting(speculative=config)
    assert found is not None
    assert (found.method, found.depth, found.verified, found.passes) == ("eagle3", 3, 4, 3)
    assert drafting() is None
    words = drafting(speculative=SpeculativeSettings(method="ngram", num_speculative_tokens=5))
    assert words is not None
    assert (words.depth, words.passes, words.drafter) == (5, 0, None)


def test_mtp_of_the_checkpoint_itself() -> None:
    config = SpeculativeSettings(method="mtp", num_speculative_tokens=1)
    found = drafting("deepseek-v3", gpus=8, tp=8, speculative=config)
    assert found is not None
    assert (found.method, found.verified, found.layout.tensor_parallel_size) == ("mtp", 2, 8)
    same = drafting("deepseek-v3", gpus=8, tp=8, engine="sglang", speculative_algorithm="EAGLE")
    assert same is not None
    assert (same.method, same.depth, same.branches) == ("mtp", 3, 1)


def test_a_checkpoint_named_as_its_own_draft_is_its_mtp_blocks() -> None:
    given = {"gpus": 8, "tp": 8, "engine": "sglang", "speculative_algorithm": "NEXTN"}
    found = drafting("deepseek-v3", speculative_draft_model_path="deepseek-v3", **given)
    assert found is not None
    assert found.method == "mtp"
    assert found.drafter is not None
    assert found.drafter.num_layers == 1


def test_sglang_verifies_a_tree(head: str) -> None:
    found = drafting(
        engine="sglang",
        speculative_algorithm="EAGLE3",
        speculative_draft_model_path=head,
        speculative_num_steps=5,
        speculative_eagle_topk=4,
        speculative_num_draft_tokens=8,
    )
    assert found is not None
    assert (found.depth, found.verified, found.branches) == (5, 8, 4)
    assert found.acceptance.rate > 0.8  # a level of a tree holds the right token more often


def test_tensorrt_llm_and_llama_cpp(head: str) -> None:
    found = drafting(
        engine="tensorrt-llm",
        speculative_type="Eagle",
        speculative_tokens=4,
        speculative_model=head,
    )
    assert found is not None
    assert (found.method, found.verified) == ("eagle3", 5)
    slow = drafting(engine="llama.cpp", draft_model="llama-3.2-1b", draft_max=8)
    assert slow is not None
    assert (slow.method, slow.depth) == ("draft_model", 8)


def test_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(DeploymentError, match="acceptance is given, but the deployment drafts no"):
        drafting(acceptance=0.5)
    unsaid = SpeculativeSettings(method="suffix", num_speculative_tokens=0)
    with pytest.raises(DeploymentError, match="number of tokens that suffix drafts is not set"):
        drafting(speculative=unsaid)
    medusa = SpeculativeSettings(method="medusa", num_speculative_tokens=3)
    with pytest.raises(DeploymentError, match="speculative method medusa is not modelled"):
        drafting(engine="vllm@0.32.0", speculative=medusa)
    nameless = SpeculativeSettings(method="eagle", num_speculative_tokens=3)
    with pytest.raises(DeploymentError, match="needs a model that drafts, and none is named"):
        drafting(speculative=nameless)


def test_sglang_waits_for_drafts_before_its_second_worker(head: str) -> None:
    """Overlapped since 0.5.11; before, verification shows."""
    given = {
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": head,
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
    }
    old = speed("llama-3.1-8b", "h100", engine="sglang@0.5.9", concurrency=1, **given)
    new = speed("llama-3.1-8b", "h100", engine="sglang@0.5.20", concurrency=1, **given)
    assert (old.terms.asynchronous, new.terms.asynchronous) == (False, True)
    assert old.tpot_seconds.value > new.tpot_seconds.value
