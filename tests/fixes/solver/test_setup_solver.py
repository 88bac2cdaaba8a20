"""What the solver says: few reasons with their numbers, what it did not judge, and what excludes what; answers that
were worked out by hand, from the sources beside each, and those of the oracle.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Known
from gpudoctor.core.stack import GPU, Wishes
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.diagnosis.knowledge.setup_facts import NONE, with_setup_facts
from gpudoctor.diagnosis.page_cache import toml
from gpudoctor.fixes.solver.described_machine import parse_machine, snapshot_of
from gpudoctor.fixes.solver.environment import Environment
from gpudoctor.fixes.solver.solution import Candidate, facts_once_installed
from gpudoctor.fixes.solver.solver import solve
from tests.fixes.solver.combinations import trial
from tests.needs import trials

A100 = parse_machine("gpu=A100-SXM4-80GB,driver=535.183.06,python=3.12,os=linux,arch=x86_64,glibc=2.35")


def wanting(*wants: str, machine: Wishes = A100) -> Wishes:
    return replace(machine, wants=wants)


def said(wishes: Wishes) -> str:
    return "\n".join(f"{one.standing} {one.candidate}: {one.because}" for one in solve(wishes).reasons)


def test_the_choice_comes_first_with_why_and_then_what_else_there_was() -> None:
    solution = solve(A100)
    standings = [reason.standing for reason in solution.reasons]
    assert standings[0] == "chosen"
    assert standings == sorted(standings, key=["chosen", "fits", "rejected"].index)
    assert len(standings) < 12
    assert "serves CUDA 12.6 by minor-version compatibility" in solution.reasons[0].because
    assert "needs driver 580.65.06 or newer, not 535.183.06" in said(A100)
    old = "gpu=RTX 2080,driver=580,python=3.12,os=linux,arch=x86_64,glibc=2.17"
    assert "needs glibc 2.28 or newer, not glibc 2.17" in said(parse_machine(old))


@pytest.mark.parametrize(
    ("distribution", "best", "libc"),
    [
        ("ubuntu 18.04", "2.6.0", "glibc 2.27"),
        ("rocky 8.9", "2.14.1", "glibc 2.28"),
        ("ubuntu 24.04", "2.14.1", "glibc 2.39"),
        ("gentoo", "2.14.1", ""),
        ("ubuntu 18.10", "2.14.1", ""),
    ],
)
def test_a_distribution_says_which_c_library_it_has(distribution: str, best: str, libc: str) -> None:
    solution = solve(
        parse_machine(f"gpu=RTX 3090,driver=550.54.14,python=3.10,arch=x86_64,distribution={distribution}")
    )
    assert solution.best
    assert solution.best.torch == best
    assert {need.what: need for need in solution.needs}["libc"].have == libc
    assert any("C library" in remark for remark in solution.remarks) is (libc == "")


def test_every_ranked_stack_begins_with_torch_and_the_newest_comes_first() -> None:
    ranked = solve(wanting("torchvision")).ranked
    assert all(candidate.packages[0].name == "torch" for candidate in ranked)
    assert all(candidate.packages[0].version == candidate.torch for candidate in ranked)
    releases = [tuple(map(int, candidate.torch.split("."))) for candidate in ranked]
    assert releases == sorted(releases, reverse=True)
    assert len({(candidate.torch, candidate.build) for candidate in ranked}) == len(ranked)


def test_what_the_best_needs_is_told_and_met() -> None:
    needs = {need.what: need for need in solve(A100).needs}
    assert all(need.met for need in needs.values())
    assert (needs["driver"].needed, needs["driver"].have) == ("525.60.13 or newer", "535.183.06")
    assert (needs["Python"].needed, needs["libc"].needed) == ("3.10 to 3.14", "glibc 2.28 or newer")
    volta = parse_machine("gpu=Tesla V100-SXM2-32GB,driver=580")
    assert (solve(volta).needs[0].needed, solve(volta).needs[0].because) == (
        "525.60.13 to 580",
        "CUDA 12.6 and Tesla V100-SXM2-32GB",
    )


@pytest.mark.parametrize(
    ("machine", "needed", "because"),
    [
        ("gpu=RTX 5080,driver=570,python=3.12", "570 or newer", "RTX 5080"),
        ("gpu=RTX 5080+H100,driver=570,python=3.12", "570 or newer", "RTX 5080"),
        ("gpu=H100,driver=570,python=3.12", "525.60.13 or newer", "CUDA 12.6"),
    ],
)
def test_one_driver_is_needed_the_newest_of_all_bounds_with_what_sets_it(
    machine: str, needed: str, because: str
) -> None:
    solution = solve(parse_machine(machine))
    driver = solution.needs[0]
    assert (driver.needed, driver.because) == (needed, because)
    assert "525.60.13" not in solution.reasons[0].because


def test_an_unknown_package_is_kept_as_it_is_and_said_to_be_unjudged() -> None:
    solution = solve(wanting("transformers>=4.40", "torch @ https://example.org/torch.whl"))
    assert solution.best
    assert [package.requirement for package in solution.best.packages[1:]] == [
        "transformers>=4.40",
        "torch @ https://example.org/torch.whl",
    ]
    assert "transformers>=4.40 is kept as it is" in " ".join(solution.remarks)


def test_two_wants_that_exclude_each_other_are_named_both() -> None:
    assert "torch==2.5.* and vllm>=0.12: exclude each other; vllm>=0.12 goes with torch 2.14.0" in said(
        wanting("torch==2.5.*", "vllm>=0.12", "numpy")
    )
    assert "rejected torch>=2.9, torch<2.6: exclude each other" in said(wanting("torch>=2.9", "torch<2.6"))
    assert "xformers==0.0.30 and vllm==0.16.0: exclude each other" in said(
        wanting("vllm==0.16.0", "xformers==0.0.30", "torchvision")
    ).replace("vllm==0.16.0 and xformers==0.0.30", "xformers==0.0.30 and vllm==0.16.0")


def test_a_release_that_the_tables_do_not_have_is_said_to_be_none_of_theirs() -> None:
    assert "the tables have no such release; the newest is 2.15.0 (checked" in said(wanting("torch>=3"))
    assert "rejected vllm==99: the tables have no such release" in said(wanting("vllm==99"))
    assert "torch<1: the tables have no such release" in said(wanting("torch<1"))


def test_what_a_marker_rules_out_is_not_wanted() -> None:
    best = solve(wanting("vllm; sys_platform == 'win32'", "torchvision; python_version >= '3.10'")).best
    assert best
    assert [package.name for package in best.packages] == ["torch", "torchvision"]


@pytest.mark.parametrize("text", ["", "--index-url x", "torch>=", "-e .", "torch vision", "torch;rm -rf /"])
def test_what_is_no_requirement_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no requirement"):
        solve(wanting(text))


def test_the_plugin_of_jax_is_that_of_the_cuda_major_or_the_one_asked_for() -> None:
    machine = A100.with_wish("driver", "580.95.05")
    chosen = {}
    for want in ("jax", "jax[cuda12]", "jax[cuda13]"):
        best = solve(wanting(want, machine=machine)).best
        assert best
        chosen[want] = (best.build, best.packages[1].name)
    assert chosen == {
        "jax": ("cu132", "jax[cuda13]"),
        "jax[cuda12]": ("cu126", "jax[cuda12]"),
        "jax[cuda13]": ("cu132", "jax[cuda13]"),
    }


def test_one_local_version_asks_for_one_build() -> None:
    best = solve(wanting("torch==2.9.1+cpu")).best
    assert best
    assert (best.build, best.cuda) == ("cpu", "")


@pytest.mark.parametrize(("system", "has_ptx"), [("linux", True), ("windows", False)])
def test_a_windows_wheel_without_a_list_of_its_own_has_no_ptx(system: str, has_ptx: bool) -> None:
    facts = facts_once_installed(Candidate("2.9.0", "cu129", "12.9", ()), Environment(), Wishes(os=system))
    archs = dict(facts)["torch.archs"]
    assert isinstance(archs, list)
    assert "sm_120" in archs
    assert ("compute_120" in archs) is has_ptx


def test_without_any_gpu_and_driver_it_is_a_build_without_cuda() -> None:
    solution = solve(Wishes(python="3.12", os="linux", arch="x86_64"))
    assert solution.best
    assert (solution.best.build, solution.best.default) == ("cpu", False)
    assert "No GPU and no driver is known" in solution.remarks[0]


@pytest.mark.parametrize(
    ("machine", "remark"),
    [
        ("gpu=RTX 5000,driver=580", "may be of compute capability 7.5 or 8.9"),
        ("gpu=H100", "driver is not known"),
        ("gpu=H100,driver=700", "Driver 700 is newer than the tables"),
        ("gpu=H100,driver=580", "Python's version is not known"),
        ("driver=580", "No GPU is known"),
        ("gpu=sm_107,driver=595", "which drivers serve it was not judged"),
        ("gpu=H200,driver=535.183.06", "first driver known to list H200 is 550"),
    ],
)
def test_what_is_not_known_rules_nothing_out_and_is_said(machine: str, remark: str) -> None:
    solution = solve(parse_machine(machine))
    assert solution.best
    assert remark in " ".join(solution.remarks)


def test_a_name_of_several_generations_is_served_in_each() -> None:
    both = solve(parse_machine("gpu=RTX 5000,driver=580.95.05,python=3.12"))
    older = solve(replace(parse_machine("driver=580.95.05,python=3.12"), gpus=(GPU("RTX 5000", "7.5"),)))
    assert [(one.torch, one.build) for one in both.ranked] == [(one.torch, one.build) for one in older.ranked]


@pytest.mark.parametrize("machine", ["os=linux,arch=x86_64", "os=windows", "os=wsl", "arch=aarch64"])
def test_systems_without_wheels_are_named(machine: str) -> None:
    assert solve(parse_machine(f"gpu=H100,driver=595.71,{machine}")).best
    other = replace(parse_machine("gpu=H100,driver=595.71"), os="macos", arch="arm64")
    assert "has no wheel for macOS on aarch64" in said(other)
    assert not solve(other).best


def test_changes_of_several_kinds_are_told_as_one() -> None:
    wishes = parse_machine("gpu=RTX 5090,driver=535.95.05,python=3.8,os=linux,arch=x86_64")
    remedy = solve(wishes).smallest[0]
    assert remedy.text.startswith("driver 570 or newer")
    assert remedy.text.endswith(", and Python 3.9 or newer")
    assert [one.field for one in remedy.also] == ["python"]
    assert solve(wishes.remedied(remedy)).best


def test_a_driver_is_named_that_the_distribution_ships() -> None:
    machine = "gpu=RTX 4090,driver=515.105.01,python=3.12,os=linux,arch=x86_64,distribution="
    wants = ("torch>=2.8",)
    told = {
        name: solve(replace(parse_machine(machine + name), wants=wants)).smallest[0]
        for name in ("debian 12", "debian 13", "ubuntu 24.04", "rocky 9.4", "gentoo", "debian 11")
    }
    assert {name: remedy.value for name, remedy in told.items()} == {
        "debian 12": "535",
        "debian 13": "550",
        "ubuntu 24.04": "580",
        "rocky 9.4": "580",
        "gentoo": "580",
        "debian 11": "580",
    }
    assert told["debian 12"].text == "driver 525.60.13 or newer; Debian 12 ships 535"
    assert told["rocky 9.4"].text.endswith("NVIDIA's repository ships 580")
    assert told["gentoo"].text.endswith("580 is the long-term branch")


@pytest.mark.parametrize("gpu", ["RTX 5090", "H100", "Tesla V100-SXM2-32GB"])
@pytest.mark.parametrize(
    "distribution", ["ubuntu 22.04", "ubuntu 24.04", "debian 12", "debian 13", "rhel 9", "fedora 43", "arch"]
)
def test_the_driver_named_for_torch_is_the_one_that_setup_driver_installs(gpu: str, distribution: str) -> None:
    """The table `shipped` of drivers.toml decides both."""
    wishes = parse_machine(f"gpu={gpu},driver=470.256.02,python=3.12,os=linux,arch=x86_64,distribution={distribution}")
    remedy = next(one for one in solve(replace(wishes, wants=("torch>=2.11",))).smallest if one.field == "driver")
    build = solve(wishes.remedied(remedy)).best
    assert build
    facts = {**snapshot_of(wishes).facts, "torch.cuda": Known(build.cuda, "test")}
    there = with_setup_facts(replace(complete(snapshot_of(wishes)), facts=facts))
    own = there.text("setup.branch")
    assert remedy.value == (own if own != NONE else there.text("setup.nvidia_branch"))


def test_a_driver_that_the_distribution_does_not_ship_costs_more_than_another_python() -> None:
    machine = "gpu=A100-SXM4-80GB,driver=535.183.06,python=3.15,os=linux,arch=x86_64,distribution="
    order = {
        name: [one.field for one in solve(parse_machine(machine + name)).smallest]
        for name in ("debian 12", "ubuntu 24.04")
    }
    assert order == {"debian 12": ["python", "driver"], "ubuntu 24.04": ["driver", "python"]}


def test_a_system_on_chip_is_sent_to_wheels_of_its_own() -> None:
    solution = solve(parse_machine("gpu=Orin,driver=540.4.0,python=3.10,arch=aarch64"))
    assert not solution.best
    assert "NVIDIA's own wheels for JetPack" in " ".join(solution.remarks)


def test_a_wheel_of_flash_attn_is_named_by_torch_cuda_abi_and_python() -> None:
    best = solve(wanting("flash-attn", "torch==2.6.0", machine=replace(A100, python="3.11"))).best
    assert best
    assert best.packages[1].origin == "wheel"
    assert best.packages[1].url.endswith(
        "/v2.8.3/flash_attn-2.8.3+cu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl"
    )
    compiled = solve(wanting("flash-attn", "torch==2.14.1", machine=replace(A100, python="3.11")))
    assert compiled.best
    assert compiled.best.compiled
    assert "flash-attn must be compiled with nvcc 12" in compiled.reasons[0].because


def test_every_offer_can_be_asked_for() -> None:
    for field, values in solve(A100).offers.items():
        for value in values:
            solve(A100.with_wish(field, (value,) if field == "extras" else value))


def test_a_package_that_is_spelt_almost_as_a_known_one_is_asked_about() -> None:
    remarks = " ".join(solve(wanting("tprch", "flashattn", "numpy")).remarks)
    assert remarks.count("Did you mean") == 2
    assert "Did you mean torch?" in remarks
    assert "Did you mean flash-attn?" in remarks


CASES: list[Mapping[str, Any]] = toml(Path(__file__).with_name("checked.toml"))["case"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_answer_is_the_one_that_was_worked_out(case: Mapping[str, Any]) -> None:
    wishes = replace(parse_machine(case["machine"]), wants=tuple(case.get("wants", ())))
    solution = solve(wishes)
    best = solution.best
    if "torch" in case:
        assert best
        assert (best.torch, case.get("build", best.build)) == (case["torch"], best.build)
        beside = {package.name: package.version for package in best.packages}
        assert beside == {**beside, **case.get("beside", {})}
        assert not any(remedy.text for remedy in solution.smallest)
    else:
        assert best is None
        assert bool(solution.smallest) is not bool(case.get("nothing"))
    for field, least in case.get("change", {}).items():
        remedy = solution.smallest[0]
        assert (remedy.field, remedy.least) == (field, least)
        assert remedy.value == case.get("sets", remedy.value)
        assert case.get("also_change", field) in [other.field for other in solution.smallest]
    for remedy in solution.smallest:
        assert solve(wishes.remedied(remedy)).best, remedy
    assert case.get("says", "") in " ".join(reason.because for reason in solution.reasons)


SEEDS, EACH = 10, 1000
CHANGES = 10
"""Of every tenth combination the smallest changes are tried, too."""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, SEEDS))])
def test_the_solver_says_what_the_oracle_says(seed: int) -> None:
    differences = trial(seed, trials(EACH), CHANGES)
    assert not differences, "\n".join(differences[:5])
