"""What vLLM refuses before it loads anything."""

from __future__ import annotations

import pytest

from tokenroom.errors import DeploymentError
from tokenroom.fitting import fit

_VISION = "meta-llama/Llama-3.2-11B-Vision-Instruct"


def test_models_that_were_taken_out_are_refused() -> None:
    with pytest.raises(DeploymentError, match=r"Mllama.*no longer runs.*0\.10\.2"):
        fit(_VISION, "A100 80GB", engine="vllm@0.11.0")


def test_models_run_in_the_last_version_that_has_them() -> None:
    fit(_VISION, "A100 80GB", engine="vllm@0.10.2", max_num_seqs=8)
