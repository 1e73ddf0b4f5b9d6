"""What starts servers of prompts, servers of answers and the proxy before them, on one host.

As vLLM 0.33's ``docs/features/nixl_connector_usage.md`` does it: each server on GPUs and ports of
its own, with the connector and its role, and the proxy of vLLM's tests
(``tests/v1/kv_connector/nixl_integration/toy_proxy_server.py``), which takes servers in turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tokenroom.engines.launch import LaunchCommand
from tokenroom.fitting import FitResult
from tokenroom.planning.candidates import Candidate
from tokenroom.planning.demand import Demand
from tokenroom.planning.splits import server_fit, server_of
from tokenroom.serving.fleet_description import Role

PORT: Final = 8000
"""Where the proxy listens, as a single server would."""

_ROLES: Final = {Role.PREFILL: ("kv_producer", 8100), Role.DECODE: ("kv_consumer", 8200)}
"""What the connector calls it, and the first port."""

_SIDE_CHANNEL: Final = 5600
_PROXY: Final = "tests/v1/kv_connector/nixl_integration/toy_proxy_server.py"
_FLAG: Final = "--kv-transfer-config"


def server_launch(result: FitResult, role: Role, number: int, first_gpu: int) -> LaunchCommand:
    """The command of one server.

    Args:
        result: The server.
        role: What it does.
        number: Which one of its role, from 0.
        first_gpu: Of its GPUs on the host.
    """
    launch = result.launch
    assert launch is not None
    name, port = _ROLES[role]
    words = list(launch.arguments)
    place = words.index(_FLAG) + 1
    words[place] = json.dumps(json.loads(words[place]) | {"kv_role": name})
    gpus = range(first_gpu, first_gpu + result.deployment.node.count)
    return replace(
        launch,
        arguments=(*words, "--port", str(port + number)),
        environment={
            **launch.environment,
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(_SIDE_CHANNEL + first_gpu),
        },
    )


def launches(candidate: Candidate, demand: Demand) -> Iterator[tuple[Role, LaunchCommand]]:
    """The command of every server of one replica, those of prompts first.

    Raises:
        TokenroomError: The engine refuses a server.
    """
    split = candidate.split
    assert split is not None
    gpu = 0
    for role, count in (
        (Role.PREFILL, split.prompt_servers),
        (Role.DECODE, split.answer_servers),
    ):
        result = server_fit(server_of(candidate, role), demand)
        for number in range(count):
            yield role, server_launch(result, role, number, gpu)
            gpu += result.deployment.node.count


def split_script(candidate: Candidate, demand: Demand, version: str) -> str:
    """A shell script that starts one replica: its servers, and the proxy that clients ask.

    Args:
        candidate: What is deployed.
        demand: What it serves.
        version: Of vLLM.

    Raises:
        TokenroomError: The engine refuses a server.
    """
    split = candidate.split
    assert split is not None
    lines = [f"{launch.shell_text} &" for _, launch in launches(candidate, demand)]
    proxy = _PROXY.rsplit("/", 1)[-1]
    address = f"https://raw.githubusercontent.com/vllm-project/vllm/v{version}/{_PROXY}"
    words = [f"python {proxy} --port {PORT}"]
    for name, role, count in (
        ("prefiller", Role.PREFILL, split.prompt_servers),
        ("decoder", Role.DECODE, split.answer_servers),
    ):
        ports = (str(_ROLES[role][1] + number) for number in range(count))
        words.append(f"--{name}-hosts {' '.join(['localhost'] * count)}")
        words.append(f"--{name}-ports {' '.join(ports)}")
    return "\n".join(
        ["pip install nixl", *lines, f"curl -sSO {address}", " ".join([*words, "&"]), "wait"]
    )
