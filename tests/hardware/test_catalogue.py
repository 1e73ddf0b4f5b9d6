import json
from pathlib import Path

import pytest

from tokenroom.errors import HardwareError
from tokenroom.hardware import catalogue
from tokenroom.hardware.catalogue import (
    custom_accelerator,
    find_accelerator,
    load_catalogue,
    search,
)
from tokenroom.hardware.names import read_name
from tokenroom.units import GIB, MIB

# Names in the validation data that are no accelerator's: mixtures, classes and other devices.
NOT_A_PART = (
    "None",
    "CPU",
    "mixed",
    "-class",
    "+",
    "50-series",
    "3090/4090",
    "XPU tile",
    "emulated",
    "Tenstorrent",
    "RK3588",
    "gfx1030",
    "SM120",
)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("H100", "h100-sxm-80gb"),
        ("H100 80GB", "h100-sxm-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ("h100-sxm-80gb", "h100-sxm-80gb"),
        ("H100-SXM-80GB", "h100-sxm-80gb"),
        ("H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", "h100-nvl-94gb"),
        ("8xA100", "a100-sxm-80gb"),
        ("A100-40GB", "a100-sxm-40gb"),
        ("A100-PCIE-40GB", "a100-pcie-40gb"),
        ("RTX 4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("RTX 4090 48GB", "rtx-4090-48gb"),
        ("RTX 3090", "rtx-3090"),
        ("5090", "rtx-5090"),
        ("L40S", "l40s"),
        ("MI300X", "mi300x"),
        ("GB10 / DGX Spark", "gb10"),
        ("T4", "t4"),
        ("V100 16GB", "v100-sxm-16gb"),
        ("V100 32GB", "v100-sxm-32gb"),
        ("B200", "b200-sxm-180gb"),
        ("H20", "h20-96gb"),
        ("A10G", "a10g"),
        ("Apple M3 Max", "m3-max-128gb"),
        ("M3 Max 64GB", "m3-max-64gb"),
        ("RTX 6000 Ada", "rtx-6000-ada"),
        ("Quadro RTX 6000", "quadro-rtx-6000"),
        ("GH200-480GB", "gh200-96gb"),
    ],
)
def test_the_spellings_people_use_are_found(name: str, key: str) -> None:
    assert find_accelerator(name).key == key


def test_every_name_means_one_part_only() -> None:
    """Except families whose sizes or generations cannot be told apart, which are refused."""
    ambiguous = {}
    for gpu in load_catalogue():
        assert find_accelerator(gpu.key) == gpu
        assert find_accelerator(gpu.name) == gpu
        for alias in gpu.aliases:
            try:
                assert find_accelerator(alias) == gpu
            except HardwareError as error:
                ambiguous[alias] = str(error)
    assert set(ambiguous) == {"RTX 6000"}
    assert "may be" in ambiguous["RTX 6000"]


def test_every_figure_has_a_source() -> None:
    figures = (
        "memory_bytes",
        "driver_memory_bytes",
        "bandwidth_bytes_per_second",
        "flops_per_second",
        "link_bytes_per_second",
        "pcie_bytes_per_second",
        "multiprocessors",
    )
    for gpu in load_catalogue():
        for figure in figures:
            assert bool(getattr(gpu, figure)) == bool(gpu.sources.get(figure)), (gpu.key, figure)


def test_figures_are_plausible() -> None:
    for gpu in load_catalogue():
        assert gpu.memory_bytes <= gpu.nominal_memory_bytes * 1.0738, gpu.key  # GiB taken for GB
        if gpu.driver_memory_bytes and not gpu.unified_memory:
            gap = gpu.driver_memory_bytes - gpu.memory_bytes
            assert 0 < gap < GIB, gpu.key
        if "fp8" in gpu.flops_per_second:
            assert gpu.flops_per_second["fp8"] >= gpu.flops_per_second["bf16"], gpu.key


def test_an_h100_has_what_pytorch_and_the_driver_report() -> None:
    gpu = find_accelerator("H100")
    assert gpu.memory_bytes == round(79.19 * GIB)
    assert gpu.driver_memory_bytes == 81559 * MIB
    assert gpu.nominal_memory_bytes == 80 * 10**9
    assert gpu.compute_capability == (9, 0)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("H1000", "no GPU is called 'H1000'; near it are h100-sxm-80gb"),
        ("toaster", "no GPU is called 'toaster'; `tokenroom gpus` lists the names"),
        ("", "no GPU is called ''"),
        (
            "X1",
            "its memory, such as --gpu-memory 96GiB, or describe it in a file (--gpu-file)",
        ),
        ("V100 PCIe", "may be v100-pcie-32gb or v100-pcie-16gb; write one of these"),
        ("RTX 4090 16GB", "known are rtx-4090, rtx-4090-48gb; another size"),
        ("H200 (80 GB emulated)", "no GPU is called"),
        ("H100 MIG 5g.50gb", "no MIG profile 5g.50gb of NVIDIA H100 80GB HBM3 is known; known"),
        ("L40S MIG 1g.5gb", "no MIG profile 1g.5gb of NVIDIA L40S is known; give its memory"),
    ],
)
def test_what_cannot_be_found_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(HardwareError) as caught:
        find_accelerator(name)
    assert sentence in str(caught.value)


def test_a_mig_slice_has_its_own_memory_and_shares() -> None:
    whole = find_accelerator("H100")
    part = find_accelerator("NVIDIA H100 80GB HBM3 MIG 3g.40gb")
    assert part.memory_bytes == round(39.38 * GIB)
    assert part.multiprocessors == 60
    assert part.bandwidth_bytes_per_second == whole.bandwidth_bytes_per_second / 2
    assert part.flops_per_second["bf16"] == pytest.approx(989.4e12 * 60 / 132)
    assert part.link == "none"


@pytest.mark.parametrize("gpu", ["H100", "H100 PCIe", "A100", "A100 40GB", "H200", "H100 NVL"])
def test_slices_never_exceed_the_whole(gpu: str) -> None:
    whole = find_accelerator(gpu)
    for record in load_catalogue()._record(whole.key).slices.items():
        part = find_accelerator(f"{gpu} MIG {record[0]}")
        assert part.memory_bytes < whole.memory_bytes * 1.001
        assert part.multiprocessors <= whole.multiprocessors


@pytest.mark.parametrize(
    ("words", "held", "not_held"),
    [
        ("rtx-40", "rtx-4090", {"l40", "a40", "p40", "m3-max-128gb", "rtx-a4000"}),
        ("rtx 40", "rtx-4070-ti", {"rtx-3090", "l40"}),
        ("rtx4090", "rtx-4090", {"rtx-4080"}),
        ("4070ti", "rtx-4070-ti", {"rtx-4070"}),
        ("a100", "a100-pcie-40gb", {"a10"}),
        ("l40", "l40s", {"l4"}),
        ("h100 sxm5", "h100-sxm-80gb", {"h100-pcie-80gb"}),
        ("80gb hopper", "h800-sxm-80gb", {"a100-sxm-80gb"}),
    ],
)
def test_search_goes_by_words(words: str, held: str, not_held: set[str]) -> None:
    found = {gpu.key for gpu in search(words)}
    assert held in found
    assert not found & not_held


def test_a_whole_key_is_known() -> None:
    known = load_catalogue()
    assert known.with_key("RTX 4090") == find_accelerator("rtx-4090")
    assert known.with_key("a100") is None
    assert known.slices(find_accelerator("H100"))["3g.40gb"].multiprocessors == 60
    assert known.slices(find_accelerator("H100 MIG 3g.40gb")) == {}
    assert search("显卡") == ()


ECC_CARDS = {
    "a10": 23028,
    "a16": 15356,
    "a40": 46068,
    "l4": 23034,
    "l20": 46068,
    "l40": 46068,
    "l40s": 46068,
    "t4": 15360,
}


@pytest.mark.parametrize("key", ECC_CARDS)
def test_cards_with_ecc_on_lose_a_sixteenth(key: str) -> None:
    gpu = find_accelerator(key)
    assert gpu.driver_memory_bytes == ECC_CARDS[key] * MIB
    nominal_bytes = round(gpu.nominal_memory_bytes / 1e9) * GIB
    assert gpu.driver_memory_bytes / nominal_bytes == pytest.approx(15 / 16, rel=1e-3)
    assert gpu.memory_bytes < gpu.driver_memory_bytes
    assert not gpu.memory_assumed


def test_assumed_memory_is_marked() -> None:
    """Exactly where the source says that it was derived from a nominal size."""
    for gpu in load_catalogue():
        source = gpu.sources["memory_bytes"].lower()
        derived = "no driver figure was found" in source or source.startswith("nominal size")
        assert gpu.memory_assumed == derived, gpu.key
    assert find_accelerator("RTX 5000 Ada").memory_assumed
    assert not custom_accelerator(31 * GIB, base=find_accelerator("RTX 5000 Ada")).memory_assumed


def test_search_takes_words_in_any_field() -> None:
    assert {gpu.key for gpu in search("mi300")} == {"mi300x"}
    assert {gpu.key for gpu in search("hopper nvl")} == {"h100-nvl-94gb", "h200-nvl-141gb"}
    assert search("no such thing") == ()
    assert len(search()) == len(load_catalogue())


def test_a_custom_accelerator_keeps_what_its_base_has() -> None:
    gpu = custom_accelerator(96 * GIB, base=find_accelerator("RTX 4090"))
    assert gpu.custom
    assert gpu.memory_bytes == 96 * GIB
    assert gpu.driver_memory_bytes is None
    assert gpu.bandwidth_bytes_per_second == 1008e9
    alone = custom_accelerator(GIB, bandwidth=1e12)
    assert alone.bandwidth_bytes_per_second == 1e12
    assert alone.compute_capability is None
    with pytest.raises(HardwareError, match="GPU memory is 0 bytes"):
        custom_accelerator(0)
    with pytest.raises(HardwareError, match="more than 1024 PiB"):
        custom_accelerator(10**400)
    with pytest.raises(HardwareError, match="GPU bandwidth is -1"):
        custom_accelerator(2**30, bandwidth=-1)


FILES = {
    "gpus.toml": '[[accelerators]]\nname = "Acme X1"\nmemory = "95 GiB"\nbandwidth = "2 TB/s"\n',
    "gpus.json": '{"accelerators": [{"name": "Acme X1", "memory": "95 GiB", '
    '"bandwidth": "2 TB/s"}]}',
    "gpus.yaml": "accelerators:\n- name: Acme X1\n  memory: 95 GiB\n  bandwidth: 2 TB/s\n",
    "bare.toml": 'name = "Acme X1"\nmemory = "95 GiB"\nbandwidth = "2 TB/s"\n',
    "bare.json": '{"name": "Acme X1", "memory": "95 GiB", "bandwidth": "2 TB/s"}',
    "list.json": '[{"name": "Acme X1", "memory": "95 GiB", "bandwidth": "2 TB/s"}]',
    "list.yaml": "- name: Acme X1\n  memory: 95 GiB\n  bandwidth: 2 TB/s\n",
    "under.yaml": "accelerators: {name: Acme X1, memory: 95 GiB, bandwidth: 2 TB/s}\n",
}


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_the_users_extends_the_catalogue(file: str, tmp_path: Path) -> None:
    path = tmp_path / file
    path.write_text(FILES[file], encoding="utf-8")
    own = load_catalogue(path)
    gpu = own.find("acme x1")
    assert gpu.memory_bytes == 95 * GIB
    assert gpu.bandwidth_bytes_per_second == 2e12
    assert gpu.custom
    assert own.find("H100").key == "h100-sxm-80gb"
    assert not own.find("H100").custom


def test_the_environment_names_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gpus.toml"
    path.write_text(FILES["gpus.toml"], encoding="utf-8")
    monkeypatch.setenv(catalogue.ENVIRONMENT_VARIABLE, str(path))
    assert find_accelerator("acme x1").name == "Acme X1"


def test_a_users_entry_takes_the_place_of_a_bundled_one(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    entry = {"name": "NVIDIA H100 80GB HBM3", "memory": "79.10 GiB", "aliases": ["A100"]}
    path.write_text(json.dumps({"accelerators": [entry]}), encoding="utf-8")
    own = load_catalogue(path)
    assert own.find("NVIDIA H100 80GB HBM3").memory_bytes == round(79.10 * GIB)
    assert own.find("A100").memory_bytes == round(79.10 * GIB)
    assert own.find("A100 40GB").key == "a100-sxm-40gb"


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("gpus.toml", "[[accelerators", "gpus.toml is not valid TOML"),
        ("gpus.json", "{", "gpus.json is not valid JSON"),
        ("gpus.yaml", "a: [", "gpus.yaml is not valid YAML"),
        ("gpus.txt", "", "may be .toml, .json, .yaml or .yml"),
        ("gpus.json", "[]", "gpus.json describes no GPU; write one with its name and memory"),
        ("gpus.json", '{"accelerators": {}}', "gpus.json describes no GPU"),
        ("gpus.json", '{"gpus": []}', "gpus.json describes no GPU"),
        ("gpus.yaml", "X1", "gpus.yaml describes no GPU"),
        ("gpus.toml", 'name = "X1"\n', "the GPU in gpus.toml has no memory"),
        ("gpus.toml", 'name = "X1"\nmemory = "9 GiB"\nram = 1\n', "has an unknown field 'ram'"),
        ("gpus.json", '{"accelerators": [3]}', "accelerators[0] in gpus.json is 3"),
        (
            "gpus.json",
            '{"accelerators": [{"name": "X", "memory": 9}, {"name": "x", "memory": 9}]}',
            "accelerators[1] in gpus.json has the key 'x' of one before it",
        ),
        ("gpus.json", "[" * 5_000, "gpus.json is not valid JSON"),
        ("gpus.toml", "x = " + "[" * 5_000, "gpus.toml is not valid TOML"),
        ("gpus.yaml", "[" * 5_000, "gpus.yaml is not valid YAML"),
        ("gpus.yaml", "# " + "x" * 2**24, "is larger than 10 MiB"),
        ("gpus.yaml", "accelerators: [{name: X, memory: 80}]\n", None),
        (
            "gpus.toml",
            '[[accelerators]]\nname = "X"\nmemory = "80"\n',
            "memory of accelerators[0] in gpus.toml is '80'",
        ),
    ],
)
def test_a_broken_file_is_refused_in_one_sentence(
    file: str, text: str, sentence: str | None, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.write_text(text, encoding="utf-8")
    if sentence is None:
        assert load_catalogue(path).find("X").memory_bytes == 80
        return
    with pytest.raises(HardwareError) as caught:
        load_catalogue(path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match="cannot be read"):
        load_catalogue(tmp_path / "none.toml")


@pytest.mark.shared
@pytest.mark.parametrize("file", ["engine_memory.jsonl", "perf.jsonl"])
def test_every_accelerator_of_the_validation_data_is_known(shared: Path, file: str) -> None:
    rows = (shared / "truth" / file).read_text(encoding="utf-8").splitlines()
    names = {str(json.loads(row)["gpu"]) for row in rows}
    unknown = set()
    for name in names:
        try:
            find_accelerator(name)
        except HardwareError:
            unknown.add(name)
    assert {name for name in unknown if not any(word in name for word in NOT_A_PART)} == set()


@pytest.mark.shared
def test_recorded_totals_agree_with_the_catalogue(shared: Path) -> None:
    """Totals that engines printed lie within 1 % of ours; drivers differ by as much."""
    compared = 0
    for row in (shared / "truth" / "engine_memory.jsonl").read_text("utf-8").splitlines():
        data = json.loads(row)
        total_gib = data["reported"].get("total_gpu_gib")
        try:
            gpu = find_accelerator(str(data["gpu"]))
        except HardwareError:
            continue
        # Windows and the earliest DGX Spark images show another total; the sources say so.
        if total_gib is None or gpu.key in ("rtx-4060", "gb10"):
            continue
        compared += 1
        assert gpu.memory_bytes / GIB == pytest.approx(total_gib, rel=0.01), data["id"]
    assert compared > 60


def test_names_are_compared_without_punctuation() -> None:
    assert read_name("A100-SXM4-80GB") == read_name("a100 sxm 80 gb")
