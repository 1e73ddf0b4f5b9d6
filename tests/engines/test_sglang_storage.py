"""How SGLang keeps DeepSeek V4's weights: scales of FP4 experts, ``wo_a``, rotary tables."""

from __future__ import annotations

from typing import Any

import pytest

from tokenroom import fit
from tokenroom.engines.sglang.storage import Fp4Scales, Storage, storage_of
from tokenroom.fitting import FitResult
from tokenroom.units import GIB

_PRO = "deepseek-ai/DeepSeek-V4-Pro"


def _fit(gpu: str, version: str, model: str = _PRO, **given: Any) -> FitResult:
    return fit(model, gpu, engine=f"sglang@{version}", tp=8, **given)


def _storage(gpu: str, version: str, **given: Any) -> Storage:
    deployment = _fit(gpu, version, **given).deployment
    return storage_of(deployment.spec, deployment.node.accelerator, deployment.resolved)


@pytest.mark.parametrize(
    ("gpu", "version", "given", "scales"),
    [
        ("h200", "0.5.14", {}, Fp4Scales.FLOATS),
        ("h200", "0.5.14", {"moe_runner_backend": "marlin"}, Fp4Scales.BOTH),
        ("h200", "0.5.16", {"moe_runner_backend": "marlin"}, Fp4Scales.BYTES),
        ("h200", "0.5.20", {}, Fp4Scales.BYTES),
        ("h200", "0.5.20", {"moe_a2a_backend": "deepep"}, Fp4Scales.FLOATS),
        ("b200", "0.5.14", {"moe_a2a_backend": "deepep"}, Fp4Scales.BYTES),
        ("b200", "0.5.14", {"moe_runner_backend": "triton"}, Fp4Scales.FLOATS),
        ("rtx-pro-6000", "0.5.14", {}, Fp4Scales.BOTH),
        ("rtx-pro-6000", "0.5.16", {}, Fp4Scales.BYTES),
        ("mi355x", "0.5.14", {}, Fp4Scales.BYTES),
    ],
)
def test_scales_by_kernel(gpu: str, version: str, given: dict[str, Any], scales: Fp4Scales) -> None:
    assert _storage(gpu, version, **given).fp4_scales is scales


@pytest.mark.parametrize(
    ("gpu", "version", "variable", "plain"),
    [
        ("h200", "0.5.14", "1", True),
        ("h200", "0.5.16", "1", False),
        ("h200", "0.5.16", None, True),
        ("b200", "0.5.14", None, False),
        ("b200", "0.5.14", "0", True),
        ("rtx-pro-6000", "0.5.14", None, True),
    ],
)
def test_the_output_projection(gpu: str, version: str, variable: str | None, plain: bool) -> None:
    given = {} if variable is None else {"SGLANG_OPT_FP8_WO_A_GEMM": variable}
    assert _storage(gpu, version, environment=given).plain_output is plain


def test_marlin_s_weights_are_those_of_a_log() -> None:
    """SemiAnalysisAI/InferenceX issue 2128: "mem usage=125.65 GB", and the share is too small."""
    result = _fit("h200", "0.5.14", moe_runner_backend="marlin", mem_fraction_static=0.88)
    assert result.plan.stages[0].weights_bytes == pytest.approx(125.65 * GIB, rel=0.001)
    assert result.plan.refusal is not None
    assert result.plan.refusal.cause == "static_share_too_small"


def test_other_models_keep_what_is_stored() -> None:
    assert _storage("h200", "0.5.14", model="Qwen/Qwen3-8B").fp4_scales is None
    assert _storage("h200", "0.5.14", model="Qwen/Qwen3-8B").tables == 1
