"""Shell text, containers and deployment files, unwrapped to programs with arguments."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenroom.engines.command_line import looks_like_yaml, read_launches
from tokenroom.engines.containers import read_docker_run
from tokenroom.engines.shell import expand, hole_in, split_shell
from tokenroom.errors import CommandLineError


def _words(text: str, **variables: str) -> list[tuple[str, ...]]:
    return [command.words for command in split_shell(text, variables)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b  c", ["a", "b", "c"]),
        ("a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("a --x='{\"k\": 1}'", ["a", '--x={"k": 1}']),
        (r'a "q\"r" "s\\t" "\n"', ["a", 'q"r', "s\\t", "\\n"]),
        ("a $'x\\ty\\'z\\x41\\u00e9'", ["a", "x\ty'zA\u00e9"]),
        ("a \\\n  b", ["a", "b"]),
        ("a \\  \n  b", ["a", "b"]),
        ("a --x=\\\nb", ["a", "--x=b"]),
        ("a `\n b ^\n c", ["a", "b", "c"]),
        ("a b # c d", ["a", "b"]),
        ("a b#c", ["a", "b#c"]),
        ("a '' \"\"", ["a", "", ""]),
        ("a > log 2>&1 b", ["a", "b"]),
        ("a >> log 2> err < in b &", ["a", "b"]),
        ("a &> log b", ["a", "b"]),
        ("a <<< word b", ["a", "b"]),
        ("$ a b", ["a", "b"]),
        ("a 2 b", ["a", "2", "b"]),
        ("a $X/y", ["a", "1/y"]),
        ('a ${X}y ${Y:-d e} "${Y:-d e}"', ["a", "1y", "d", "e", "d e"]),
        ("a ${X:+set} ${Y:+set}b ${Y-q} ${Z-q}", ["a", "set", "b", "q"]),
        ("a $L", ["a", "p", "q"]),
        ('a "$L"', ["a", "p q"]),
        ("a x${L}y", ["a", "xp", "qy"]),
        ("a '$X'", ["a", "$X"]),
        ("a \\$X $", ["a", "$X", "$"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert _words(text, X="1", L="p q", Z="") == [tuple(words)]


def test_pipes_and_lists_are_separate_commands() -> None:
    assert _words("a 1 | b && c || d; e\nf | g | h") == [
        ("a", "1"),
        ("c",),
        ("d",),
        ("e",),
        ("f",),
    ]


def test_here_documents_are_skipped() -> None:
    assert _words("cat <<EOF > f\nvllm serve x\nEOF\nb") == [("cat",), ("b",)]
    assert _words("cat <<'END'\nno end") == [("cat",)]


def test_variables_are_remembered_and_exported() -> None:
    commands = split_shell("A=1\nexport B=2 C\nD=$A$B cmd $A ${E:=5} $E\nset F=6\ncmd $F")
    assert commands[0].words == ("cmd", "1", "5", "5")
    assert commands[0].environment == {"B": "2", "D": "12"}
    assert commands[1].words == ("cmd", "6")
    assert commands[1].environment == {"B": "2", "F": "6"}


def test_powershell_variables() -> None:
    commands = split_shell('$env:A = "1"\r\n$Env:B=2; cmd $env:A\r\n')
    assert commands[0].words == ("cmd", "1")
    assert commands[0].environment == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("text", "hole"),
    [
        ("a $NOPE", "$NOPE"),
        ("a ${NOPE}", "$NOPE"),
        ("a ${NOPE:?must be set}", "$NOPE"),
        ("a $(cmd x)", "$(cmd x)"),
        ("a `cmd x`", "`cmd x`"),
        ('a "pre-$(cmd)"', "$(cmd)"),
        ("a ${x[@]}", "${x[@]}"),
        ("a $1", "$1"),
    ],
)
def test_what_cannot_be_known_is_a_hole(text: str, hole: str) -> None:
    ((_, word),) = _words(text)
    assert hole_in(word) == hole


@pytest.mark.parametrize("text", ["a 'b", 'a "b', "a ${b", "a $(b", "a `b", "a $'b", 'a "`b"'])
def test_open_quotes_are_refused(text: str) -> None:
    with pytest.raises(CommandLineError, match="never closes it"):
        split_shell(text)


def test_huge_texts_are_refused() -> None:
    with pytest.raises(CommandLineError, match="at most 1 MB"):
        split_shell("a" * 1_000_001)


def test_compose_interpolation() -> None:
    assert expand("${A:-x}-$B-$$C", {"B": "2"}) == "x-2-$C"


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab '\"\\$`{}()<>|&;#\n=-:1", max_size=30))
def test_any_text_splits_or_is_refused(text: str) -> None:
    try:
        commands = split_shell(text)
    except CommandLineError:
        return
    assert all(command.words for command in commands)


def test_docker_run_options() -> None:
    text = (
        "sudo docker container run -it --rm=true -d -p80:80 -v a:b --gpus all -eA=1 -e B --env=C=3 "
        "--name=n --shm-size=1g --entrypoint sh img:1 -c x"
    )
    launch = read_docker_run(text.split(), {"B": "2"})
    assert launch is not None
    assert launch.image == "img:1"
    assert launch.words == ("sh", "-c", "x")
    assert launch.environment == {"A": "1", "B": "2", "C": "3"}
    assert (launch.name, launch.gpus, dict(launch.facts)) == ("n", None, {"shm-size": "1g"})
    assert not launch.image_entrypoint


@pytest.mark.parametrize(
    ("gpus", "count"),
    [
        ("all", None),
        ("2", 2),
        ('"device=0,1,3"', 3),
        ("device=GPU-3faa", 1),
        ('"device=0,capabilities=utility"', 1),
        ("count=4", 4),
    ],
)
def test_docker_gpus(gpus: str, count: int | None) -> None:
    launch = read_docker_run(["docker", "run", "--gpus", gpus, "img"])
    assert launch is not None
    assert launch.gpus == count


def test_docker_run_that_is_none() -> None:
    assert read_docker_run(["docker", "ps"]) is None
    assert read_docker_run(["vllm", "serve", "m"]) is None
    with pytest.raises(CommandLineError, match="names no image"):
        read_docker_run(["docker", "run", "--rm"])
    with pytest.raises(CommandLineError, match="-v of docker run has no value"):
        read_docker_run(["docker", "run", "-v"])


def test_shells_inside_containers_are_opened() -> None:
    text = "docker run --entrypoint bash img -lc 'export A=1; exec prog --x $A'"
    (launch,) = read_launches(text)
    assert launch.words == ("exec", "prog", "--x", "1")
    assert launch.environment == {"A": "1"}
    assert launch.image == "img"


def test_endless_wrapping_is_refused() -> None:
    with pytest.raises(CommandLineError, match="wraps another more than 8 times"):
        read_launches('sh -c "$X"', {"X": 'sh -c "$X"'})


def test_yaml_is_told_from_commands() -> None:
    assert looks_like_yaml("services:\n  a: {}\n")
    assert looks_like_yaml("---\na: 1\n")
    assert not looks_like_yaml("vllm serve m --x '{\"kind\": 1}'")


@pytest.mark.parametrize("text", ["services: [", "kind: *x", "kind: !!python/object:x y"])
def test_damaged_yaml_is_refused(text: str) -> None:
    with pytest.raises(CommandLineError, match="the YAML cannot be read"):
        read_launches(text)


def test_deep_yaml_is_refused() -> None:
    text = "spec: " + "{a: " * 60 + "1" + "}" * 60
    with pytest.raises(CommandLineError, match="nested deeper"):
        read_launches(text)


COMPOSE = """
services:
  a:
    image: "img:${TAG:-1}"
    command: ["--x", "1", 2, true]
    environment: {N: 3, M: "${OUTER}"}
    gpus: all
  b:
    image: img
    entrypoint: prog --flag
    command: --y 'a b' --z "c d" $${KEPT}
    deploy: {resources: {reservations: {devices: [{count: 2}, {device_ids: ["5"]}]}}}
  c: none
"""


def test_compose() -> None:
    first, second = read_launches(COMPOSE, {"OUTER": "o"})
    assert (first.image, first.words) == ("img:1", ("--x", "1", "2", "true"))
    assert first.environment == {"N": "3", "M": "o"}
    assert (first.gpus, first.image_entrypoint) == (None, True)
    assert second.words == ("prog", "--flag", "--y", "a b", "--z", "c d", "${KEPT}")
    assert (second.name, second.gpus, second.image_entrypoint) == ("b", 3, False)


KUBERNETES = """
apiVersion: v1
kind: ConfigMap
metadata: {name: m}
data: {args: ["x"]}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - {key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-L40S]}
  containers:
  - name: c
    image: img
    command: [prog]
    args: ["--a=$(A)", "--b=$$(A)", "--c=$(NOPE)"]
    env:
    - {name: A, value: "1"}
    - {name: S, valueFrom: {secretKeyRef: {name: s, key: k}}}
    resources: {requests: {amd.com/gpu: "2"}}
"""


def test_kubernetes() -> None:
    (launch,) = read_launches(KUBERNETES)
    assert launch.words == ("prog", "--a=1", "--b=$(A)", "--c=$(NOPE)")
    assert (launch.name, launch.gpus, launch.accelerator) == ("Pod p/c", 2, "NVIDIA-L40S")
    assert launch.environment == {"A": "1"}


def test_helm_image_and_arguments() -> None:
    text = "image: {repository: vllm/vllm-openai, tag: v0.1.2}\nargs: [--model, m]\n"
    (launch,) = read_launches(text)
    assert launch.image == "vllm/vllm-openai:v0.1.2"
    assert launch.words == ("--model", "m")
