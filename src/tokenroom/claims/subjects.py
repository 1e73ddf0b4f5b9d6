"""Models and deployments that several claims are about, resolved once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from tokenroom.fitting import FitResult, fit
from tokenroom.memory.kv_cache import request_bytes
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models.quantization import what_if
from tokenroom.models.resolve import load_model
from tokenroom.models.spec import Attention, ModelSpec, Weight
from tokenroom.serving_speed import ServingSpeed, speed_of

LLAMA_2_7B: Final = "meta-llama/Llama-2-7b-hf"
LLAMA_3_8B: Final = "meta-llama/Meta-Llama-3-8B"
LLAMA_3_70B: Final = "meta-llama/Meta-Llama-3-70B"
LLAMA_405B: Final = "meta-llama/Meta-Llama-3.1-405B"
QWEN_72B: Final = "Qwen/Qwen2.5-72B"
DEEPSEEK_V3: Final = "deepseek-ai/DeepSeek-V3"
A100: Final = "a100-80gb"

CONFIGURATION: Final = "config.json of the model (tokenroom models NAME tells where it was read)"
CASE_TOKENS: Final = 4096
"""Length of a request of the handbook's case."""


@lru_cache(maxsize=64)
def model(name: str, layout: str | None = None) -> ModelSpec:
    """A model of the catalogue, in another layout where one is named."""
    spec = load_model(name)
    return spec if layout is None else what_if(spec, layout)


@lru_cache(maxsize=128)
def deployed(name: str, gpu: str, layout: str | None = None, **settings: Any) -> FitResult:
    """A model on GPUs; settings as :func:`tokenroom.fit` takes them."""
    return fit(model(name, layout), gpu, **settings)


def the_case() -> FitResult:
    """Llama-3-70B in 16 bits on eight A100 of 80 GB under vLLM, requests of 4,096 tokens."""
    return deployed(LLAMA_3_70B, A100, tp=8, context=CASE_TOKENS)


def case_speed(concurrency: int) -> ServingSpeed:
    """Its speed for clients with prompts of 3,072 tokens and answers of 1,024."""
    return speed_of(the_case(), input_tokens=3072, output_tokens=1024, concurrency=concurrency)


def weights(name: str, layout: str | None = None) -> int:
    """Bytes of a whole checkpoint."""
    return checkpoint_weights(model(name, layout)).total_bytes


def kv(name: str, tokens: int, dtype: str = "float16") -> int:
    """Bytes of the KV cache of a request."""
    return request_bytes(model(name), tokens, dtype)


def attention(name: str) -> Attention:
    """The attention of a model's first layer."""
    (mixer,) = model(name).layers[0].mixers
    assert isinstance(mixer, Attention)
    return mixer


def layer_weights(name: str, ending: str) -> tuple[Weight, ...]:
    """Weights of the first layer whose name ends so."""
    found = model(name).layers[0].weights
    return tuple(weight for weight in found if weight.name.endswith(ending))


def short(name: str) -> str:
    """A model's name without whose it is."""
    return name.rsplit("/", 1)[-1]
