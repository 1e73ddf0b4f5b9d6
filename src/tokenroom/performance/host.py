"""What the host adds to a step: scheduling, preparing inputs, starting kernels, reading results.

``step_seconds``, ``sequence_seconds``, ``overlap_seconds``, ``request_seconds`` and
``token_seconds`` of vLLM, SGLang and TensorRT-LLM were chosen from a grid on serving measurements
(docs/speed.md says on which, and which were kept for checking), ``request_seconds`` by the mean of
the medians of their models, cards and precisions. What a faster host hides does not show in those:
``prepare_seconds`` and ``kernel_seconds`` are typical of Python schedulers (2 and 1 ms a step, 5
microseconds a launch); SGLang's request and token times and llama.cpp's row are assumptions.

``latent_seconds`` and ``scan_seconds``: SGLang and TensorRT-LLM run prompts without graphs, and
what surrounds attention over latents (class ``MLA`` of TensorRT-LLM's _torch/modules/attention.py;
SGLang 0.5.9 attention_forward_methods/forward_mha.py ``forward_normal_prepare``) or a scan (the
Triton kernels of SGLang's layers/attention/fla) is many small operators that Python starts one by
one, so that a short prompt waits for the host. They make the median error of TTFT smallest of the
rows kept for fitting (DeepSeek-R1 and Qwen3.5), from grids of 0.25 and 0.5 ms. vLLM compiles its
models, and its rows show no such time.

``pass_seconds`` of vLLM makes the errors smallest of 12 TPOTs of EAGLE and EAGLE-3 that vLLM issue
20780 reports (0.9, H100), ``verify_seconds`` of SGLang is what three throughputs of pull request
4247 leave (0.4.4, H100); TensorRT-LLM and llama.cpp, of which none were found, have neither. All of
it is host work, which hides behind a step where the engine schedules ahead.

What a host adds differs from machine to machine and by version. ``spare_seconds`` is how much less
and more than the estimate a step took in the shortest fifth of the rows kept for checking, where
operators err least, beyond what the ranges of operators explain: nothing where those hold nine of
ten rows on their side (``scripts/host_range.py``; of llama.cpp the shortest fifth of llama-bench's
tokens). Less than the host's part cannot be spared.
Of transformers ``kernel_seconds`` is what its own pull request 34247 (November 2024) leaves for an
operator, which is several kernels there: Llama 3 8B in 30 ms a token with a dynamic cache, 292
operators; InternLM/lmdeploy issue 210 has Llama 2 7B in 34 ms on an A10.
``prepare_range_seconds`` goes from nothing to the shortest step that was measured of the engine,
which its host cannot have taken longer to prepare.

``first_token_range``: how far the ends of the range that the steps of a TTFT give have to reach to
hold 80% of the rows that coefficients were set on, each model on each kind of GPU counting alike,
by the engine or by all three together, whichever is wider (``scripts/first_token_range.py``).
llama.cpp's prompts were measured without a server around them and need none.

``pipelines_chunks``: vLLM counts a chunk's tokens as computed once it is scheduled (0.33
v1/core/sched/scheduler.py ``_update_after_schedule``), SGLang goes on with the chunked request in
the next micro-batch (0.5.23 scheduler_pp_mixin.py); TensorRT-LLM leaves out requests in flight
(1.2 pyexecutor/py_executor.py ``inflight_req_ids``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tokenroom.performance.factors import UNCALIBRATED, Factors


class HostCost(NamedTuple):
    """The host's part of a step.

    Attributes:
        step_seconds: Part of every step that the accelerators wait for: their launch and the
            hand-over of sampled tokens.
        sequence_seconds: The same for each request of the step.
        prepare_seconds: Scheduling and preparing a step, hidden behind the step before where the
            engine schedules ahead.
        kernel_seconds: Starting one kernel from Python when no graph is replayed.
        latent_seconds: Starting, in the same way, all that surrounds one layer's attention of
            prompts over latents (MLA): splits, expansions, rotations, quantising, the cache.
        scan_seconds: The same of one layer that scans prompts (linear attention, state spaces).
        overlap_seconds: How much of a kernel's start the kernel before it hides when a graph is
            replayed (programmatic dependent launch, CUDA programming guide 12, section 6.2).
        mixes: Prompts and decoding requests share steps; otherwise prompts go first, alone.
        pipelines_chunks: The next chunk of a prompt enters a pipeline while the one before is in
            it; otherwise each passes all stages first.
        request_seconds: From the arrival of a request to the engine and back to the client:
            HTTP and queues between processes.
        token_seconds: Tokenising and copying a prompt, for each of its tokens.
        verify_seconds: Sampling by rejection and preparing the drafter, each step that verifies.
        pass_seconds: Preparing and launching one pass of the drafter.
        spare_seconds: How much less and more than the estimate a step takes on other hosts.
        prepare_range_seconds: Least and most of ``prepare_seconds``.
        first_token_range: Factors on the ends of the range of a TTFT, for what a request waits
            outside of the steps it is in.
    """

    step_seconds: float
    sequence_seconds: float
    prepare_seconds: float
    kernel_seconds: float
    latent_seconds: float
    scan_seconds: float
    overlap_seconds: float
    mixes: bool
    pipelines_chunks: bool
    request_seconds: float
    token_seconds: float
    verify_seconds: float
    pass_seconds: float
    spare_seconds: tuple[float, float]
    prepare_range_seconds: tuple[float, float]
    first_token_range: tuple[float, float]

    def scaled(self, factors: Factors) -> HostCost:
        """The same of a machine that was calibrated; what overlaps is the accelerators' affair."""
        if factors is UNCALIBRATED:
            return self
        return self._replace(
            step_seconds=factors.host * self.step_seconds,
            sequence_seconds=factors.host * self.sequence_seconds,
            prepare_seconds=factors.host * self.prepare_seconds,
            kernel_seconds=factors.host * self.kernel_seconds,
            latent_seconds=factors.host * self.latent_seconds,
            scan_seconds=factors.host * self.scan_seconds,
            verify_seconds=factors.host * self.verify_seconds,
            pass_seconds=factors.host * self.pass_seconds,
            request_seconds=factors.arrival * self.request_seconds,
            token_seconds=factors.arrival * self.token_seconds,
        )


COSTS: Final[dict[str, HostCost]] = {
    "vllm": HostCost(
        step_seconds=0.3e-3,
        sequence_seconds=2e-6,
        prepare_seconds=2e-3,
        kernel_seconds=5e-6,
        latent_seconds=0.0,
        scan_seconds=0.0,
        overlap_seconds=1e-6,
        mixes=True,
        pipelines_chunks=True,
        request_seconds=15e-3,
        token_seconds=5e-6,
        verify_seconds=0.0,
        pass_seconds=0.4e-3,
        spare_seconds=(0.0, 0.78e-3),
        prepare_range_seconds=(0.0, 3.0e-3),
        first_token_range=(0.81, 1.48),
    ),
    "sglang": HostCost(
        step_seconds=1.0e-3,
        sequence_seconds=2e-6,
        prepare_seconds=1e-3,
        kernel_seconds=5e-6,
        latent_seconds=1.5e-3,
        scan_seconds=3.5e-3,
        overlap_seconds=0.0,
        mixes=False,
        pipelines_chunks=True,
        request_seconds=15e-3,
        token_seconds=5e-6,
        verify_seconds=3.2e-3,
        pass_seconds=0.0,
        spare_seconds=(0.77e-3, 0.0),
        prepare_range_seconds=(0.0, 5.8e-3),
        first_token_range=(0.69, 6.29),
    ),
    "tensorrt_llm": HostCost(
        step_seconds=0.3e-3,
        sequence_seconds=0.0,
        prepare_seconds=1e-3,
        kernel_seconds=5e-6,
        latent_seconds=1.25e-3,
        scan_seconds=0.0,
        overlap_seconds=2e-6,
        mixes=True,
        pipelines_chunks=False,
        request_seconds=10e-3,
        token_seconds=1e-6,
        verify_seconds=0.0,
        pass_seconds=0.0,
        spare_seconds=(0.0, 0.42e-3),
        prepare_range_seconds=(0.0, 2.3e-3),
        first_token_range=(0.80, 1.70),
    ),
    "transformers": HostCost(
        step_seconds=0.8e-3,
        sequence_seconds=0.0,
        prepare_seconds=0.0,
        kernel_seconds=0.1e-3,
        latent_seconds=0.0,
        scan_seconds=0.0,
        overlap_seconds=0.0,
        mixes=False,
        pipelines_chunks=False,
        request_seconds=0.0,
        token_seconds=0.0,
        verify_seconds=0.0,
        pass_seconds=0.0,
        spare_seconds=(0.0, 0.0),
        prepare_range_seconds=(0.0, 0.0),
        first_token_range=(1.0, 1.0),
    ),
    "llama_cpp": HostCost(
        step_seconds=0.1e-3,
        sequence_seconds=5e-6,
        prepare_seconds=0.0,
        kernel_seconds=1e-6,
        latent_seconds=0.0,
        scan_seconds=0.0,
        overlap_seconds=0.0,
        mixes=True,
        pipelines_chunks=True,
        request_seconds=1e-3,
        token_seconds=0.0,
        verify_seconds=0.0,
        pass_seconds=0.0,
        spare_seconds=(0.0, 0.0),
        prepare_range_seconds=(0.0, 0.0),
        first_token_range=(1.0, 1.0),
    ),
}
_OTHER: Final = COSTS["vllm"]


def arrival_seconds(host: HostCost, prompt_tokens: int) -> float:
    """What a request spends outside the accelerators before its first token."""
    return host.request_seconds + prompt_tokens * host.token_seconds


def first_token_ends(
    host: HostCost, low: float, high: float, steps_low: float
) -> tuple[float, float]:
    """The ends of the range of a TTFT, from those without what it waits outside of its steps.

    Nothing spares its own steps, whose lower end ``steps_low`` it stays above.
    """
    below, above = host.first_token_range
    return max(below * low, min(low, steps_low)), above * high


def host_cost(engine: str) -> HostCost:
    """The host's part under an engine; vLLM's for one that was not measured."""
    return COSTS.get("llama_cpp" if engine.startswith("llama_cpp") else engine, _OTHER)
