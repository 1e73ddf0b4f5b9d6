"""What clients may ask, checked before anything is computed.

A model is named from the catalogue, pasted as its config.json, or named in an engine's pasted
command. No field is ever opened as a file, and none is fetched, except a Hub id where the operator
allows that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import to_json

from tokenroom.errors import TokenroomError
from tokenroom.planning.lengths import USUAL_TOKENS
from tokenroom.web.traffic import MAX_REQUESTS, check_workload

MAX_COMMAND_CHARACTERS: Final = 65_536
MAX_CONFIG_CHARACTERS: Final = 2**20
MAX_ROWS: Final = 5_000

_LONG_NUMBER: Final = re.compile(rb"(?<!\d)\d{4301}")  # Python reads no more digits

Name = Annotated[str, Field(min_length=1, max_length=200)]
Size = Annotated[str, Field(min_length=1, max_length=40)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000, strict=True)]
Clients = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Tokens = Annotated[int, Field(ge=1, le=2**40, strict=True)] | Size
Lengths = (
    Annotated[int, Field(ge=1, le=2**40, strict=True)]
    | Annotated[str, Field(min_length=1, max_length=1_000)]
)
Scalar = bool | int | float | str | None
Setting = Scalar | list[Scalar] | dict[str, Scalar]


class _Question(BaseModel):
    """What every question has."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), allow_inf_nan=False)

    language: Literal["en", "zh"] = Field("en", description="Language of the sentences.")

    @model_validator(mode="before")
    @classmethod
    def _writable(cls, data: Any) -> Any:
        """Refuses what Python cannot write or read: halves of surrogates, deep nesting, digits."""
        try:
            text = to_json(data)
        except ValueError:
            raise ValueError(
                "the question holds text that is no Unicode, or is nested too deeply"
            ) from None
        if _LONG_NUMBER.search(text):
            raise ValueError("the question holds a number of thousands of digits")
        return data


class DeploymentQuestion(_Question):
    """A model on GPUs under an engine."""

    model: Name | None = Field(
        None, description="Name in the catalogue (GET /v1/models); MODEL@awq is it in a layout."
    )
    config: dict[str, Any] | Annotated[str, Field(max_length=MAX_CONFIG_CHARACTERS)] | None = Field(
        None, description="A config.json, as an object or as its text."
    )
    command: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_COMMAND_CHARACTERS,
        description="An engine's command, compose file or manifest; options below replace its own.",
    )
    service: Name | None = Field(None, description="Which service of a compose file or manifest.")
    gpu: Name | None = Field(None, description="GPU (GET /v1/gpus); 8xh100 is eight of them.")
    gpus: Count | None = Field(None, description="How many; as many as the parallel sizes need.")
    gpu_memory: Size | None = Field(None, description="Memory of a GPU not listed, as 96GiB.")
    bandwidth: Size | None = Field(None, description="Its memory bandwidth, as 3.35TB/s.")
    used: Size | None = Field(None, description="Memory others hold on each GPU, as 2GiB.")
    engine: Name | None = Field(None, description="vllm, sglang@0.5.5, ... (GET /v1/engines).")
    tp: Count | None = Field(None, description="Tensor-parallel size.")
    pp: Count | None = Field(None, description="Pipeline-parallel size.")
    dp: Count | None = Field(None, description="Data-parallel size.")
    ep: bool | None = Field(None, description="Expert parallelism.")
    context: Tokens | None = Field(None, description="max_model_len in tokens, or as 32k.")
    weights: Name | None = Field(None, description="What if the weights were fp8, awq, nf4, ...")
    kv: Name | None = Field(None, description="KV cache type, as fp8.")
    util: float | None = Field(None, description="Share of each GPU that the engine may take.")
    settings: dict[str, Setting] = Field(
        default_factory=dict, max_length=100, description="Further settings by the engine's names."
    )

    @model_validator(mode="after")
    def _one_subject(self) -> Self:
        given = [name for name in ("model", "config", "command") if getattr(self, name) is not None]
        if "command" in given and "model" in given:
            raise ValueError("model and command both name a model; give one")
        if "model" in given and "config" in given:
            raise ValueError("model and config both name a model; give one")
        if not given:
            raise ValueError("no model is given; give model, config or command")
        return self


class ExplainedQuestion(DeploymentQuestion):
    """A deployment under requests that are all alike, with the formulas where they are wanted."""

    concurrency: Count | None = Field(None, description="Requests wanted at once.")
    explain: bool = Field(False, description="Every line with its formula, values and source.")


class FitQuestion(ExplainedQuestion):
    """Does it fit, what takes the memory, and how many tokens are left."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"model": "Llama-3.1-8B-Instruct", "gpu": "h100", "context": 32768},
                {"command": "vllm serve Qwen/Qwen3-32B -tp 2 --max-model-len 16k", "gpu": "l40s"},
            ]
        }
    )

    request_tokens: Tokens | None = Field(None, description="Length of one; context by default.")
    changes: bool = Field(False, description="Also the smallest changes that make it fit.")


class SpeedQuestion(ExplainedQuestion):
    """How fast it serves requests of one length, and what holds it back."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "Llama-3.1-8B-Instruct",
                    "gpu": "h100",
                    "input": 1024,
                    "output": 256,
                    "concurrency": 32,
                }
            ]
        }
    )

    input: Tokens = Field(1024, description="Prompt of a request.")
    output: Tokens = Field(256, description="Tokens it gets.")
    tpot: str | None = Field(
        None,
        max_length=40,
        description="Find the largest load of this mean TPOT at most, such as 50ms; "
        "`concurrency` is then left aside.",
    )
    ttft: str | None = Field(None, max_length=40, description="The same of the mean TTFT.")
    rate: str | None = Field(
        None,
        max_length=40,
        description="Requests that come at a rate, as 5/s, instead of `concurrency`.",
    )
    num_prompts: Count | None = Field(
        None, description="Requests of a benchmark in all, the first of each client at once."
    )
    price: float | None = Field(None, description="USD of one GPU for an hour.")
    sweep: str | None = Field(
        None, min_length=3, max_length=2_000, description="concurrency=1..256"
    )


class SweepQuestion(FitQuestion):
    """How the answer grows with concurrency, context or block size."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "Llama-3.1-8B-Instruct",
                    "gpu": "h100",
                    "context": 8192,
                    "sweep": "concurrency=1..256",
                }
            ]
        }
    )

    sweep: str = Field(
        min_length=3,
        max_length=2_000,
        description="concurrency=1..64, context=4k,8k,32k or block_size=1..128.",
    )


class SimulateQuestion(DeploymentQuestion):
    """What clients see when a workload is served; begun as a job."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "Llama-3.1-8B-Instruct",
                    "gpu": "h100",
                    "context": 32768,
                    "workload": "chat:rate=5,requests=500",
                    "ttft": "1s",
                    "tpot": "50ms",
                },
                {
                    "command": "vllm serve Qwen/Qwen3-32B -tp 2 --max-model-len 16k",
                    "gpu": "h100",
                    "trace": "arrival,input,output\n0,1024,256\n0.5,2048,64\n",
                },
            ]
        }
    )

    workload: str | None = Field(
        None,
        min_length=1,
        max_length=4_000,
        description="A drawn workload (docs/workloads.md): poisson:rate=5,input=1024,output=256, "
        "users:count=32,..., or a preset (GET /v1/workloads). It may name no file.",
    )
    trace: str | None = Field(
        None,
        min_length=1,
        description="A trace to replay instead, in any form that tokenroom workload reads but "
        "Parquet: its content.",
    )
    trace_base64: str | None = Field(
        None, min_length=1, description="Its bytes instead, as of a file packed by gzip."
    )
    trace_name: Name | None = Field(None, description="What answers and refusals call it.")
    limit: Annotated[int, Field(ge=1, le=MAX_REQUESTS, strict=True)] | None = Field(
        None, description="Only the first so many requests."
    )
    window: Size | None = Field(
        None, description="Only requests that arrive in it, as 10m..20m, the first then at 0."
    )
    time_scale: float | None = Field(
        None, description="All times of arrival are multiplied by it: 0.5 doubles the rate."
    )
    seed: Annotated[int, Field(ge=0, le=2**63, strict=True)] | None = Field(
        None, description="Seed of a drawn workload."
    )
    format: Name | None = Field(None, description="The trace's format, where it does not tell.")
    columns: Annotated[str, Field(min_length=1, max_length=1_000)] | None = Field(
        None, description="Names of the trace's columns, as arrival=ts:ms,input=in,output=n."
    )
    skip_bad: bool = Field(False, description="Leave rows of the trace out that are no requests.")
    scheduling: dict[str, Scalar] = Field(
        default_factory=dict,
        max_length=20,
        description="Settings that change what steps run but no memory, by the engine's names, as "
        "scheduling_policy.",
    )
    ttft: Size | None = Field(
        None, description="Promise of each request's TTFT, as 2s, for goodput."
    )
    tpot: Size | None = Field(None, description="Promise of its TPOT, as 50ms.")
    price: float | None = Field(None, description="USD of one GPU for an hour.")

    @model_validator(mode="after")
    def _readable(self) -> Self:
        try:
            check_workload(self)
        except TokenroomError as error:
            raise ValueError(str(error)) from None
        return self


Chosen = Annotated[list[Name], Field(min_length=1, max_length=8)]
"""A few values to choose from."""


class TuningQuestion(_Question):
    """Settings of the engine to choose from; ``auto`` is its own."""

    token_budget: Chosen | None = Field(
        None, description="Tokens of a step, as [auto, 4096]; those usual when null."
    )
    max_num_seqs: Chosen | None = Field(None, description="Requests at once at most, likewise.")
    util: Chosen | None = Field(None, description="Shares of each GPU's memory, as [auto, 0.9].")
    prefix_caching: Chosen | None = Field(None, description="auto, on, off.")
    kv_offload: Chosen | None = Field(
        None, description="Host memory for KV blocks, as [none, 64GiB]."
    )
    draft: Chosen | None = Field(
        None, description="Speculative decoding, METHOD or METHOD:TOKENS, as [none, mtp, ngram:3]."
    )
    engine_defaults: bool = Field(
        False, description="What is null is left to the engine instead of tried as usual."
    )

    @field_validator("draft")
    @classmethod
    def _no_models(cls, value: list[str] | None) -> list[str] | None:
        if any("=" in text for text in value or ()):
            raise ValueError("draft names a model; give METHOD or METHOD:TOKENS")
        return value


class PlanQuestion(_Question):
    """Which deployments hold a load under promises; begun as a job."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "models": ["Llama-3.1-8B-Instruct"],
                    "users": 200,
                    "think_time": "10s",
                    "input": 1024,
                    "output": 256,
                    "ttft": "2s",
                    "tpot": "50ms",
                    "gpus_from": ["l40s", "h100"],
                }
            ]
        }
    )

    models: list[Name] = Field(
        min_length=1, max_length=8, description="Names in the catalogue; MODEL@fp8 in a layout."
    )
    users: Clients | None = Field(None, description="Users who wait for their answers.")
    think_time: Size | None = Field(
        None, description="Mean time from an answer to the user's next request, as 10s."
    )
    concurrency: Clients | None = Field(
        None, description="Instead: clients who each keep one request in flight."
    )
    rate: Size | None = Field(None, description="Instead: requests that come at a rate, as 12/s.")
    burst: float = Field(
        1.0, description="Of a rate: for a tenth of the time so many times as many come."
    )
    input: Lengths = Field(
        USUAL_TOKENS[0], description="Mean prompt, or a distribution (docs/workloads.md)."
    )
    output: Lengths = Field(USUAL_TOKENS[1], description="Mean answer, likewise.")
    context: Tokens | None = Field(None, description="The longest request, prompt and answer.")
    ttft: Size | None = Field(None, description="Promise of the TTFT, as 2s.")
    tpot: Size | None = Field(None, description="Promise of the TPOT, as 50ms.")
    keep: Literal["mean", "p50", "p90", "p95", "p99"] = Field(
        "p95", description="What of all requests has to keep the promises when simulated."
    )
    gpus_from: list[Name] = Field(
        default_factory=list, max_length=100, description="Kinds of GPU; all known when empty."
    )
    have: dict[Name, Count] = Field(
        default_factory=dict, max_length=20, description="GPUs that there are, by kind."
    )
    max_gpus: Annotated[int, Field(ge=1, le=32, strict=True)] = Field(
        8, description="The most GPUs of one replica."
    )
    prices: dict[Name, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, max_length=100, description="USD of one GPU for an hour, by kind."
    )
    budget: Annotated[float, Field(gt=0)] | None = Field(
        None, description="The most USD an hour that all GPUs may cost."
    )
    engines: list[Name] = Field(
        default_factory=lambda: ["vllm"], min_length=1, max_length=4, description="Engines."
    )
    weights: list[Name] = Field(
        default_factory=list, max_length=8, description="Layouts of the weights; as named if empty."
    )
    kv: list[Name] = Field(
        default_factory=lambda: ["auto"],
        min_length=1,
        max_length=4,
        description="Types of the KV cache.",
    )
    settings: TuningQuestion = Field(
        default_factory=lambda: TuningQuestion.model_validate({}),
        description="Settings of the engine to choose from.",
    )
    disaggregate: bool = Field(
        True, description="Also prompts and answers on servers of their own, where it may pay."
    )
    top: Annotated[int, Field(ge=1, le=10, strict=True)] = Field(5, description="Plans wanted.")
    seed: Annotated[int, Field(ge=0, le=2**63, strict=True)] = Field(
        0, description="Of the simulations."
    )


class RecipeQuestion(DeploymentQuestion):
    """Settings for requests of known lengths, step by step."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "Llama-3.1-8B-Instruct",
                    "gpu": "l40s",
                    "workload": "chat",
                    "tpot": "50ms",
                }
            ]
        }
    )

    p95: Tokens | None = Field(None, description="Length that 95% of requests keep.")
    workload: str | None = Field(
        None,
        min_length=1,
        max_length=4_000,
        description="Instead: a drawn workload or a scenario (GET /v1/workloads).",
    )
    input: Tokens | None = Field(None, description="With p95: mean prompt; half of it if unset.")
    output: Tokens | None = Field(None, description="With p95: mean answer; a tenth if unset.")
    tpot: Size | None = Field(None, description="Promise of the mean time per token, as 50ms.")

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.p95 is None) == (self.workload is None):
            raise ValueError("the lengths of requests are given by p95 or by workload; give one")
        return self


class PoolsQuestion(DeploymentQuestion):
    """Whether short and long prompts are better served apart; begun as a job."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "Llama-3.1-8B-Instruct",
                    "gpu": "l40s",
                    "servers": 4,
                    "workload": "rag:rate=4",
                    "limit": 300,
                    "ttft": "2s",
                }
            ]
        }
    )

    servers: Annotated[int, Field(ge=2, le=64, strict=True)] = Field(
        8, description="Servers, each of the deployment's GPUs."
    )
    workload: str = Field(
        min_length=1, max_length=4_000, description="A drawn workload (docs/workloads.md)."
    )
    limit: Annotated[int, Field(ge=1, le=MAX_REQUESTS, strict=True)] = Field(
        2000, description="Requests of each run."
    )
    ttft: Size | None = Field(None, description="Promise of each request's TTFT, as 2s.")
    tpot: Size | None = Field(None, description="Promise of its TPOT, as 50ms.")
    draws: Annotated[int, Field(ge=2, le=20, strict=True)] = Field(
        5, description="Draws that tell whether splitting pays."
    )

    @model_validator(mode="after")
    def _promised(self) -> Self:
        if self.ttft is None and self.tpot is None:
            raise ValueError("nothing is promised; give ttft, tpot or both")
        return self


class TableQuestion(_Question):
    """A look-up table."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "kv", "models": ["Meta-Llama-3-70B"]},
                {"name": "concurrency", "models": ["Meta-Llama-3-8B"], "gpus": ["a100-80gb"]},
            ]
        }
    )

    name: Literal["params", "kv", "concurrency", "gpus-for-users", "reference"]
    models: list[Name] = Field(min_length=1, max_length=50)
    gpus: list[Name] = Field(default_factory=list, max_length=50)
    layouts: list[Name] = Field(
        default_factory=lambda: ["bf16", "fp8", "int8", "awq"], min_length=1, max_length=20
    )
    batches: list[Count] = Field(
        default_factory=lambda: [1, 4, 16, 64], min_length=1, max_length=20
    )
    lengths: list[Tokens] = Field([2048, 4096, 8192, 32768], min_length=1, max_length=20)
    users: list[Clients] = Field(
        default_factory=lambda: [10, 50, 100, 500, 1000], min_length=1, max_length=20
    )
    tokens: Tokens = Field(4096, description="concurrency, reference: tokens of a request.")
    requests: Count = Field(16, description="reference: requests at once that are enough.")
    input: Tokens = Field(USUAL_TOKENS[0], description="gpus-for-users: mean prompt.")
    output: Tokens = Field(USUAL_TOKENS[1], description="gpus-for-users: mean answer.")
    think_time: Size | None = Field(None, description="gpus-for-users: between requests.")
    tpot: Size = Field("100ms", description="gpus-for-users: mean TPOT at most.")
    ttft: Size | None = Field(None, description="gpus-for-users: mean TTFT at most.")
    engine: Name = "vllm"
    kv: Name = Field("bfloat16", description="kv: type of the cache.")


class ReadQuestion(_Question):
    """What a dropped or pasted text is: a config.json, a command or an engine's log."""

    text: str = Field(min_length=1, max_length=12 * 2**20)
    service: Name | None = Field(None, description="Which service of a compose file or manifest.")
    gpu: Name | None = Field(None, description="GPU of a log that names none.")
    model: Name | None = Field(None, description="Model of a log whose own is not known.")


class ExplainQuestion(_Question):
    """Why a server ran out of memory, by what it printed."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"text": "ValueError: No available memory for the cache blocks."},
            ]
        }
    )

    text: str | None = Field(
        None, min_length=1, max_length=12 * 2**20, description="The log, or a part of it."
    )
    base64: str | None = Field(
        None,
        min_length=1,
        description="Its bytes instead: a log packed by gzip, bzip2 or xz, or a memory snapshot.",
    )
    model: Name | None = Field(None, description="The model, where the log does not name it.")
    gpu: Name | None = Field(None, description="The GPU, where the log does not name it.")
    command: str | None = Field(
        None,
        min_length=1,
        max_length=2**16,
        description="The command that started it, for what the log does not tell.",
    )

    @model_validator(mode="after")
    def _one_log(self) -> Self:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("a log is given as text or as base64; give one of the two")
        return self


class ClaimsQuestion(_Question):
    """Figures that articles publish, beside those that are computed here (docs/claims.md)."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"names": ["kv-70b-4096-x1", "table-8.1"]}, {}]}
    )

    names: list[Name] = Field(
        default_factory=list,
        max_length=400,
        description="Names of rows, or what they begin with; all rows without one.",
    )
    recorded: bool = Field(
        True, description="Take figures of simulations as they were recorded; false runs them."
    )


class ValidateQuestion(_Question):
    """How right the predictions are on rows of measurements (docs/validation.md)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "rows": [
                        {
                            "id": "mine",
                            "engine": "vllm",
                            "engine_version": "0.19.0",
                            "model": "Llama-3.1-8B-Instruct",
                            "gpu": "H100 80GB",
                            "gpus": 1,
                            "flags": {"max_model_len": 8192},
                            "reported": {"kv_tokens": 434016},
                        }
                    ]
                }
            ]
        }
    )

    rows: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_ROWS)


class JobQuestion(_Question):
    """Long work: asked now, fetched when it is done."""

    kind: Literal["sweep", "speed", "validate", "simulate", "plan", "pools", "table"] = Field(
        description="Which of the endpoints' questions."
    )
    question: dict[str, Any] = Field(description="The body that endpoint takes.")


FORMS: Final[Mapping[str, type[BaseModel]]] = {
    "fit": FitQuestion,
    "speed": SpeedQuestion,
    "sweep": SweepQuestion,
    "validate": ValidateQuestion,
    "simulate": SimulateQuestion,
    "plan": PlanQuestion,
    "recipe": RecipeQuestion,
    "pools": PoolsQuestion,
    "table": TableQuestion,
    "explain": ExplainQuestion,
    "claims": ClaimsQuestion,
    "read": ReadQuestion,
}
"""The form of each kind of question (:data:`tokenroom.web.kinds.ANSWERS` answers them)."""
