"""What a batch takes of each GPU: the cache of its layers and the peak of its passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from tokenroom.engines.policy import Deployment, Estimate
from tokenroom.engines.transformers.activation import Step, is_counted, step_terms
from tokenroom.engines.transformers.caches import CacheKind, layer_bytes
from tokenroom.engines.transformers.placement import Module, Placement
from tokenroom.engines.transformers.resolve import Resolved
from tokenroom.hardware.measured_memory import MeasuredMemory, PassScale
from tokenroom.memory.activations import Terms, terms_bytes
from tokenroom.models.spec import Layer, ModelSpec
from tokenroom.units import KIB, MIB

_CUBLAS_WORKSPACE_BYTES: Final = 32 * MIB
_CUBLAS_WORKSPACE_BYTES_OLDER: Final = 8 * MIB + 128 * KIB
# PyTorch aten/src/ATen/cuda/CublasHandlePool.cpp: from Hopper on, and before.
_HOPPER: Final = (9, 0)

_RANGE_COUNTED: Final = (-0.08, 0.15)
"""The tensors are exact for most, OLMo 2 8 % below; the caching allocator may keep freed blocks
that no tensor fits."""
_RANGE_ELSEWHERE: Final = (-0.4, 0.6)
"""Recorded passes of Mixtral, Qwen3-MoE and Qwen3-Next took -2 % to +54 % of the prediction."""
_BEYOND: Final = "measured_beyond_counted"
"""What passes measured on the machine took beyond the tensors that are counted."""
_KERNELS_BYTES: Final = 185 * MIB
_KERNELS_RANGE_BYTES: Final = (0, 600 * MIB)
_SOURCE: Final = "transformers 5.24 models/llama/modeling_llama.py, counted on recorded passes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a batch takes of one GPU.

    Attributes:
        kv_bytes: The cache between steps.
        peak: Transient memory of the widest pass above weights and that cache.
        phase: ``"prefill"`` or ``"decode"``.
        terms: What lives at that moment.
        spread: Half of its range as a share, where passes like it were measured on the machine.
        decode_bytes: The same of a step that adds one token.
    """

    kv_bytes: int
    peak: int
    phase: str
    terms: Terms
    decode_bytes: int
    spread: float | None = None


def use_of(deployment: Deployment, placement: Placement, gpu: int, batch: int, tokens: int) -> Use:
    """What a batch of sequences of that length takes of a GPU.

    Args:
        deployment: The model and its settings.
        placement: Where the modules are.
        gpu: Which GPU; modules in host memory run on the first.
        batch: Sequences.
        tokens: Tokens of each at its end.
    """
    resolved: Resolved = deployment.resolved
    layers = layers_on(deployment.spec, placement, gpu)
    cache = resolved.cache
    prompt = resolved.prompt_of(tokens)
    kept = prefilled = pair = 0
    for layer, count in layers:
        one = layer_bytes(layer, cache, batch, tokens, prompt)
        kept += one.kept * count
        prefilled += one.after_prompt * count
        pair = max(pair, one.kept)
    if cache.kind.is_offloaded:  # one layer in use and the next being brought in
        kept = prefilled = 2 * pair
    kinds = [layer for layer, _ in layers]
    last = any(module.name == "output" for module in placement.gpus[gpu])
    prefill = _pass(deployment, kinds, batch, prompt, prompt, outputs=last)
    decode = _pass(deployment, kinds, batch, 1, tokens, outputs=last)
    brought = max((module.num_bytes for module in (*placement.host, *placement.disk)), default=0)
    beside: Terms = (("module_brought_in", brought),) if gpu == 0 and brought else ()
    # Between prompt and next step sliding layers still hold the whole prompt.
    extra = max(0, prefilled - kept) if cache.kind is not CacheKind.QUANTIZED else 0
    grown: Terms = (*prefill, ("prompt_in_windows", extra)) if extra else prefill
    scale = _measured_scale(deployment, batch * prompt)
    if scale is not None:
        beyond = round(terms_bytes(grown) * (scale.ratio - 1))
        grown = (*grown, (_BEYOND, beyond))
    widest, phase = (grown, "prefill")
    if terms_bytes(decode) > terms_bytes(grown):
        widest, phase = decode, "decode"
    widest = (*widest, *beside)
    return Use(
        kv_bytes=kept,
        peak=terms_bytes(widest),
        phase=phase,
        terms=widest,
        decode_bytes=terms_bytes((*decode, *beside)),
        spread=None if scale is None or phase != "prefill" else scale.spread,
    )


def activation_shape(spec: ModelSpec) -> str:
    """What activations of a model depend on, alike for all numbers of layers."""
    kinds = dict.fromkeys(
        ",".join(f"{weight.name}:{'x'.join(map(str, weight.shape))}" for weight in layer.weights)
        for layer, _ in spec.layer_kinds
    )
    digest = sha256("|".join(kinds).encode()).hexdigest()[:12]
    return f"{spec.model_type} {spec.hidden_size} {spec.vocab_size} {digest}"


def _measured_scale(deployment: Deployment, tokens: int) -> PassScale | None:
    """By what passes of the same layers on this machine differed from the count."""
    measured = deployment.node.accelerator.measured
    if measured is None or deployment.spec.quantization is not None:
        return None
    resolved: Resolved = deployment.resolved
    shape = activation_shape(deployment.spec)
    done = measured.passes_of(shape, resolved.cache.dtype, resolved.kernel.value)
    return None if done is None else done.scale(tokens)


def _pass(
    deployment: Deployment,
    layers: Sequence[Layer],
    batch: int,
    queries: int,
    keys: int,
    *,
    outputs: bool,
) -> Terms:
    resolved: Resolved = deployment.resolved
    step = Step(
        batch=batch,
        queries=queries,
        keys=keys,
        kernel=resolved.kernel,
        dtype=resolved.cache.dtype,
        logits=resolved.logits_to_keep or queries,
        padded=resolved.padded,
        position_rows=batch,
    )
    capability = deployment.node.accelerator.compute_capability
    newer = capability is None or capability >= _HOPPER
    workspace = _CUBLAS_WORKSPACE_BYTES if newer else _CUBLAS_WORKSPACE_BYTES_OLDER
    measured = deployment.node.accelerator.measured
    if measured is not None:
        workspace = measured.workspace_bytes
    widest = step_terms(deployment.spec, step, resolved.cache, layers=layers, outputs=outputs)
    return (*widest, ("cublas_workspace", workspace))


def layers_on(spec: ModelSpec, placement: Placement, gpu: int) -> list[tuple[Layer, int]]:
    """Each distinct layer that runs on a GPU with how often; the host's run on the first."""
    modules: list[Module] = list(placement.gpus[gpu])
    if gpu == 0:
        modules += [*placement.host, *placement.disk]
    counts: dict[int, int] = {}
    for module in modules:
        if module.layer is not None:
            key = id(spec.layers[module.layer])
            counts[key] = counts.get(key, 0) + 1
    return [(layer, counts[id(layer)]) for layer, _ in spec.layer_kinds if id(layer) in counts]


def activation_estimate(spec: ModelSpec, use: Use) -> Estimate:
    """The peak with its range: as passes like it came out on the machine, or as recorded ones."""
    low, high = _RANGE_COUNTED if is_counted(spec) else _RANGE_ELSEWHERE
    if use.spread is not None:
        low, high = -use.spread, use.spread
    return Estimate(
        num_bytes=use.peak,
        low_bytes=round(use.peak * (1 + low)),
        high_bytes=round(use.peak * (1 + high)),
        phase=use.phase,
        terms=use.terms,
        source=f"{_SOURCE}; passes measured on the machine" if _is_measured(use) else _SOURCE,
    )


def _is_measured(use: Use) -> bool:
    return any(name == _BEYOND for name, _ in use.terms)


def kernels(measured: MeasuredMemory | None = None) -> Estimate:
    """Kernels that the driver loads on their first launch.

    Measured ones are of the passes that were run; others may load more, up to what is estimated
    without a measurement, and none load less than half.
    """
    low, high = _KERNELS_RANGE_BYTES
    if measured is not None:
        loaded = measured.kernels_bytes
        return Estimate(
            num_bytes=loaded,
            low_bytes=loaded // 2,
            high_bytes=max(high, loaded),
            phase="first pass",
            terms=(("kernels", loaded),),
            source=f"profile {measured.profile}, {measured.created}",
        )
    return Estimate(
        num_bytes=_KERNELS_BYTES,
        low_bytes=low,
        high_bytes=high,
        phase="first pass",
        terms=(("kernels", _KERNELS_BYTES),),
        source="PyTorch's kernels as measured on vLLM 0.19.0 (H100)",
    )
