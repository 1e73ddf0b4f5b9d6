"""The host: the kernel, containers, schedulers, /dev/shm and NCCL."""

from __future__ import annotations

from typing import Final

from tokenroom.diagnosis.sightings import Kind, kind_of

KINDS: Final[tuple[Kind, ...]] = (
    # NCCL: src/misc/shmutils.cc, src/debug.cc
    kind_of(
        "nccl_shm",
        ("shared memory segment", "/dev/shm", "/torch_", "psm_"),
        r"Error while (?:creating|attaching to) shared memory segment (?P<path>\S+)"
        r"|No space left on device.*?(?P<file>/dev/shm\S*)|(?P<whole>/dev/shm\S*).*No space left"
        r"|unable to (?:write to file|open shared memory object) <(?P<tensor>/torch_[^>]*)>.*"
        r"No space left|No space left on device: '/?(?P<queue>psm_\w+)'",
    ),
    kind_of(
        "nccl_cuda_oom",
        ("Cuda failure", "ncclUnhandledCudaError"),
        r"Cuda failure (?:2 )?'out of memory'",
    ),
    kind_of(
        "nccl_system",
        ("ncclSystemError", "unhandled system error"),
        r"ncclSystemError|unhandled system error",
    ),
    kind_of(
        "nvshmem",
        ("nvshmem", "NVSHMEM", "deep_ep", "DeepEP"),
        r"(?:nvshmem|deep_?ep).*(?:out of memory|alloc\w* fail|failed to alloc|symmetric heap)",
    ),
    kind_of("shm_file", "nccl-", r"^\S*[-rwx]{9}.*\s0\s.*\bnccl-\w{6}\b|/dev/shm/nccl-\w{6}\b"),
    kind_of(
        "bus_error",
        ("Bus error", "SIGBUS"),
        r"Bus error(?:.*insufficient shared memory)?|SIGBUS",
        warned_of=True,
    ),
    # the kernel, containers and schedulers
    kind_of(
        "dmesg_oom",
        (
            *("Killed process", "oom-kill", "cgroup out of memory", "invoked oom-killer"),
            *("OOM killer", "systemd-oomd"),
        ),
        r"Out of memory: Kill(?:ed)? process (?P<pid>\d+) \((?P<program>[^)]*)\)"
        r"|\bKilled process \d+ \(.*anon-rss|oom-kill:constraint|Memory cgroup out of memory"
        r"|invoked oom-killer|has been killed by the OOM killer|Failed with result 'oom-kill'"
        r"|systemd-oomd.*[Kk]illed",
        r"anon-rss:(?P<rss>\d+kB)",
        r"(?P<scope>global_oom|CONSTRAINT_MEMCG|Memory cgroup)",
    ),
    kind_of("oomkilled", "OOMKilled", r"OOMKilled(?!\W{1,4}(?:false|0)\b)", warned_of=True),
    kind_of("probe_failed", "probe", r"(?:Liveness|Startup|liveness|startup) probe(?:,| failed)"),
    kind_of(
        "free_memory",
        "Mem:",  # free(1)
        r"^Mem:\s+(?P<total>[\d.]+\w*)\s+(?P<used>[\d.]+\w*)\s+(?P<free>[\d.]+\w*)\s+\S+\s+\S+"
        r"\s+(?P<available>[\d.]+\w*)\s*$",
    ),
    kind_of(
        "shm_mount",
        "/dev/shm",  # df(1)
        r"^\S+\s+(?P<size>[\d.]+[KMGT]?)\s+(?P<used>[\d.]+[KMGT]?)\s+(?P<left>[\d.]+[KMGT]?)\s+"
        r"(?P<percent>\d+)%\s+/dev/shm\s*$",
    ),
    kind_of(
        "host_request",
        ("host memory available", "swap space", "on kv cache allocation"),
        # SGLang: mem_cache/memory_pool_host.py; vLLM: config.py (V0), v1/worker/cpu_worker.py
        r"Not enough host memory available\. Requesting (?P<asked>[\d.]+ GB)"
        r".*?(?P<left>[\d.]+ GB) free|(?<!Possibly )Too large swap space"
        r"|Available memory on node \S+ \(.*less than requested memory for kv",
    ),
    kind_of(
        "killed",
        (
            " 137",
            ":137",
            "=137",
            "(137",
            "Killed",
            "SIGKILL",
            "ode -9",
            "ode: -9",
            "signal: killed",
        ),
        r"\bexit(?:ed)?\W{0,4}(?:with|code|status|was|is|of|\W){0,9}137\b(?!\.\d)"
        r"|\b(?:exit)?code\W{0,8}137\b(?!\.\d)"
        r"|\bKilled\s*$|\bSIGKILL\b|(?:exit ?)?code:? -9\b|signal: killed",
        warned_of=True,
    ),
    kind_of(
        "memory_limit",
        ("memory:", "memory limit", "mem_limit"),
        r"^\s*memory:\s+(?P<limit>\d+(?:\.\d+)?\s*[KMG]i?)\s*$",
    ),
    kind_of(
        "ray_oom",
        ("low on memory", "ray-oom-prevention", "low on resource: memory"),
        r"killed due to the node running low on memory|node running low on memory"
        r"|address the out of memory issue:\s*\S*ray-oom|low on resource: memory",
    ),
    # kubectl describe, and the same in YAML
    kind_of(
        "container_began",
        ("Started:", "startedAt"),
        r"^\W*(?:Started|\"?startedAt\"?):\s+\"?(?P<at>[^\"]+?)\"?,?\s*$",
    ),
    kind_of(
        "container_ended",
        ("Finished:", "finishedAt"),
        r"^\W*(?:Finished|\"?finishedAt\"?):\s+\"?(?P<at>[^\"]+?)\"?,?\s*$",
    ),
    kind_of("restarts", "Restart Count", r"Restart Count:\s+(?P<count>\d+)"),
)
