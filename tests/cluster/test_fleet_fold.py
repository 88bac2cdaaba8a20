"""Many documents, one diagnosis: findings by count and by what hosts share, who differs, whom to take out, or go."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpudoctor.cluster.fleet.findings import Outlier, Places, drain_reason, drains, find_outliers
from gpudoctor.cluster.fleet.fold import FleetContext, FleetFold
from gpudoctor.cluster.fleet.reading import Reply
from gpudoctor.cluster.fleet.summary import Rate, Summary
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Known, Unread
from gpudoctor.views import fleet as report
from tests.cluster.fleet_documents import BOOK, LOST, document, driver, folded, hosts

OLD = {"driver.version": Known("560.35.03", "/proc/driver/nvidia/version")}
MASKED = {"env.CUDA_VISIBLE_DEVICES": Known("-1", "environment")}
UNSEEN = dict.fromkeys(("live.cuda_available", "live.outcome", "driver.version"), Unread("ended after 30 s"))


def ids(diagnosis: Diagnosis) -> list[str]:
    """Its findings'."""
    return [finding.id for finding in diagnosis.findings]


def text(diagnosis: Diagnosis) -> str:
    """The report of it."""
    assert diagnosis.fleet
    return report.render(diagnosis, diagnosis.fleet)


def test_sound_hosts_are_go() -> None:
    diagnosis = folded(hosts(4))
    assert (diagnosis.verdict, diagnosis.fleet and diagnosis.fleet.verdict) == ("sound", "go")
    assert ids(diagnosis) == ["fleet.sound"]
    assert diagnosis.snapshot.target.kind == "fleet"
    assert text(diagnosis).splitlines()[1] == "GO: all 4 hosts are sound"


def test_a_finding_is_told_once_with_whom_it_concerns() -> None:
    diagnosis = folded(hosts(9, n1=LOST, n7=LOST, n9=LOST))
    lost = diagnosis.findings[0]
    assert (lost.id, lost.severity, lost.layer) == ("gpu.fell-off-bus", "error", "gpu")
    assert lost.title.endswith(" on 3 of 9 hosts: n1, n7 and n9")
    assert lost.subject == {"hosts": ["n1", "n7", "n9"], "count": 3}
    assert [one["host"] for one in lost.subjects[1:]] == ["n1", "n7", "n9"]
    assert {one["address"] for one in lost.subjects[1:]} == {"0000:3a:00.0"}
    assert any(
        item.fact == "kernel_log.fallen_off" and item.state.source == "n1: /dev/kmsg"
        for item in lost.evidence
        if isinstance(item.state, Known)
    )
    assert lost.fixes
    assert diagnosis.verdict == "broken"


def test_findings_that_are_alike_and_not_the_same_say_so() -> None:
    other = {"kernel_log.fallen_off": Known(("0000:9a:00.0",), "/dev/kmsg")}
    title = folded(hosts(3, n1=LOST, n2=other)).findings[0].title
    assert "0000:3a:00.0" in title
    assert "(and alike) on 2 of 3 hosts" in title


def test_what_more_hosts_have_comes_first_of_what_is_as_grave() -> None:
    many = {f"n{number}": MASKED for number in (2, 3, 5)}
    errors = [one.id for one in folded(hosts(6, n1=LOST, **many)).findings if one.severity == "error"]
    assert errors == ["env.visible-devices", "gpu.fell-off-bus"]


def test_what_is_broken_on_one_host_explains_nothing_on_another() -> None:
    other = {"live.import_outcome": Known("failed", "torch"), "live.cuda_available": Known(False, "torch")}
    diagnosis = folded(hosts(3, n1=other, n2=LOST))
    assert {one.subject["hosts"][0] for one in diagnosis.findings if one.subject} == {"n1", "n2"}  # type: ignore[index]


def test_a_finding_of_each_gpu_counts_its_host_once() -> None:
    diagnosis = folded([document("n1", gpu={"remap_failed": Known(True, "nvml")}), document("n2")])
    assert diagnosis.findings[0].subject == {"hosts": ["n1"], "count": 1}
    assert [(one["host"], one["gpu"]) for one in diagnosis.findings[0].subjects[1:]] == [("n1", n) for n in range(8)]


def test_a_switch_that_all_of_them_share_is_named() -> None:
    switches = {f"n{number}": f"leaf{(number - 1) // 8 + 1}" for number in range(1, 33)}
    sick = {f"n{number}": LOST for number in range(9, 17)}
    diagnosis = folded(hosts(32, **sick), FleetContext(switches=switches))
    assert diagnosis.findings[0].title.endswith("8 of 32 hosts: n[9-16]; all 8 on switch leaf2")
    assert diagnosis.fleet
    suspect = diagnosis.fleet.suspects[0]
    assert (suspect.kind, suspect.names) == ("switch", ("leaf2",))


@pytest.mark.parametrize(
    ("sick", "words"),
    [
        (range(1, 9), "all 8 on switch leaf1"),
        ([*range(1, 8), 9], None),
        (range(1, 3), None),
        ([1, 9, 17, 25, 2, 10, 18, 26], None),
        (range(1, 33), None),
    ],
    ids=["all of a switch", "not nearly all", "too few to tell", "everywhere", "every host"],
)
def test_only_what_chance_does_not_do_is_called_shared(sick: list[int], words: str | None) -> None:
    places = Places([Summary(f"n{number}", switch=f"leaf{(number - 1) // 8 + 1}") for number in range(1, 33)])
    shared = places.shared([f"n{number}" for number in sick])
    assert (shared and shared.words) == words


def test_few_hosts_with_another_driver_are_a_warning_and_still_go() -> None:
    diagnosis = folded(hosts(5, n3=OLD))
    assert (diagnosis.verdict, diagnosis.fleet and diagnosis.fleet.verdict) == ("impaired", "go")
    (differs,) = [one for one in diagnosis.findings if one.id == "fleet.differs"]
    assert differs.title == f"driver: 560.35.03 on 1 of 5 hosts (n3), {driver()} on the others"
    assert differs.subject == {"hosts": ["n3"], "count": 1}
    assert diagnosis.fleet
    assert diagnosis.fleet.result("n3", "alike").outcome == "warning"
    assert diagnosis.fleet.result("n4", "alike").outcome == "ok"


def test_a_silent_host_keeps_the_verdict_open_and_is_named() -> None:
    diagnosis = folded([*hosts(3), ""], FleetContext(scheduler="slurm"))
    assert diagnosis.fleet
    assert (diagnosis.verdict, diagnosis.fleet.verdict) == ("unknown", "unknown")
    assert diagnosis.fleet.drain == ()
    assert "No answer from file4 (1 of 4 hosts): nothing came back" in [one.title for one in diagnosis.findings]
    assert diagnosis.fleet.sound == ["n1", "n2", "n3"]


def test_silent_hosts_are_taken_out_where_that_is_asked_for() -> None:
    diagnosis = folded([*hosts(3, n2=LOST), ""], FleetContext(scheduler="slurm", drain_silent=True))
    assert diagnosis.fleet
    assert [drain.argv[2:] for drain in diagnosis.fleet.drain] == [
        ("NodeName=n2", "State=DRAIN", "Reason=gpudoctor:gpu.fell-off-bus"),
        ("NodeName=file4", "State=DRAIN", "Reason=gpudoctor:fleet.no-answer"),
    ]


def test_hosts_that_could_not_judge_themselves_keep_the_verdict_open() -> None:
    diagnosis = folded(hosts(3, n2=UNSEEN))
    assert diagnosis.verdict == "unknown"
    assert "1 of 3 hosts could not judge themselves" in [one.title for one in diagnosis.findings]


def test_of_two_documents_of_a_host_the_later_counts_and_that_is_said() -> None:
    diagnosis = folded([document("n1", LOST), document("n2"), document("n1")])
    assert diagnosis.verdict == "sound"
    assert [note.text for note in diagnosis.notes] == ["More than one document of n1: the later one counts."]


def test_a_document_that_can_be_read_is_not_lost_to_a_later_one_that_cannot() -> None:
    folding = FleetFold(BOOK)
    for reply in (Reply(document("n1"), "n1"), Reply("Killed", "n1")):
        folding.add(reply)
    assert folding.diagnosis(FleetContext("fleet")).snapshot.value("fleet.answered") == 1


def test_other_versions_and_levels_are_said() -> None:
    other = (
        document("n2").replace('"version":"', '"version":"99.', 1).replace('"level":"standard"', '"level":"quick"', 1)
    )
    diagnosis = folded([document("n1"), other])
    assert diagnosis.snapshot.target.level == "quick"
    notes = " ".join(note.text for note in diagnosis.notes)
    assert "documents of other versions were read as well: 99." in notes
    assert "not asked alike: standard (1 host), quick (1 host)" in notes


def test_the_report_fits_the_page() -> None:
    diagnosis = folded([*hosts(5, n1=LOST, n2=OLD), "Killed"], FleetContext(scheduler="kubernetes", seconds=12.3))
    lines = text(diagnosis).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:2] == [
        f"gpudoctor {diagnosis.tool_version}: fleet, 6 hosts, level standard, in 12 s",
        "NO-GO: 1 of 6 hosts has errors, 1 gave no answer; 4 may train",
    ]
    assert "  $ kubectl cordon n1" in lines


def test_what_was_cut_off_is_no_go_or_unknown_and_says_so() -> None:
    cut = FleetContext(cut="gpudoctor was ended before every host had answered.")
    sound, sick = folded(hosts(3), cut), folded(hosts(3, n1=LOST), cut)
    assert [one.fleet and one.fleet.verdict for one in (sound, sick)] == ["unknown", "no-go"]
    assert cut.cut in [note.text for note in sound.notes]


def test_of_nobody_nothing_is_said_to_be_sound() -> None:
    diagnosis = folded([])
    assert (diagnosis.verdict, diagnosis.fleet and diagnosis.fleet.verdict) == ("unknown", "unknown")


def test_reasons_need_no_quotes() -> None:
    assert drain_reason("it's bad; \n$(reboot)") == "gpudoctor:it_s_bad_reboot_"
    (drain,) = drains([("n2", "gpu.xid"), ("n1", "gpu.xid")])
    assert (drain.hosts, drain.argv) == (("n1", "n2"), ())


def test_more_facts_of_a_job_are_judged_with_them() -> None:
    versions = {"job.nccl_versions": Known(("2.27.3", "2.26.2"), "the ranks")}
    diagnosis = folded(hosts(3), replace(FleetContext(), facts=versions))
    assert "nccl.version" in ids(diagnosis)


DRIVER = "driver.version"


def valued(values: Sequence[str], fact: str = DRIVER, gpu: str = "H100", first: int = 1) -> list[Summary]:
    """A host for each value."""
    return [Summary(f"n{number}", values={fact: value}, gpu=gpu) for number, value in enumerate(values, first)]


def rated(rates: Sequence[float], gpu: str = "H100", first: int = 1) -> list[Summary]:
    """A host for each rate of a matrix product."""
    return [
        Summary(f"n{number}", rates={"matmul.bf16": Rate(value, "TFLOP/s", 2)}, gpu=gpu)
        for number, value in enumerate(rates, first)
    ]


def told(outliers: Sequence[Outlier]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Value, usual value and hosts of each."""
    return [(one.value, one.usual, one.hosts) for one in outliers]


KIND = valued(["8 × H100"] * 7, "gpu.name")
NAMED = [Summary(f"n{number}") for number in range(1, 4)]
H100 = [Summary(f"n{number}", gpu="H100") for number in range(1, 20)]


@pytest.mark.parametrize(
    ("summaries", "odd"),
    [
        (valued(["580", "580", "570", "580"]), [("570", "580", ("n3",))]),
        (valued(["580"] * 8 + ["570", "570", "550"]), [("570", "580", ("n9", "n10")), ("550", "580", ("n11",))]),
        ([*NAMED, Summary("n4", values={"env.NCCL_P2P_DISABLE": "1"})], [("1", "not there", ("n4",))]),
        ([*KIND, *valued(["7 × H100"], "gpu.name", first=8)], [("7 × H100", "8 × H100", ("n8",))]),
        ([*H100, Summary("n20", gpu="A10")], [("A10", "H100", ("n20",))]),
        # Memory that the kernel keeps is no difference.
        (valued(["1031521", "1031519", "1031400", "515000"], "host.memory_mib"), [("515000", "1031521", ("n4",))]),
        # Two hosts or equal ones have no outlier, nor have two kinds; and who did not say counts neither way.
        *((valued(values), []) for values in (["580"], ["580", "570"], ["580", "580", "580"])),
        ([*H100, *(Summary(f"a{number}", gpu="A10") for number in range(1, 10))], []),
        ([*valued(["580", "580", "580"]), Summary("n8"), Summary("n9", because="timed out")], []),
    ],
)
def test_the_minority_is_named(summaries: list[Summary], odd: list[tuple[str, str, tuple[str, ...]]]) -> None:
    outliers, splits = find_outliers(summaries)
    assert (told(outliers), splits) == (odd, [])
    assert all(one.matters for one in outliers if one.fact == DRIVER)


def test_half_against_half_is_told_once_and_blames_nobody() -> None:
    outliers, splits = find_outliers(valued(["580", "570"] * 4))
    assert outliers == []
    assert [(one.fact, one.values, one.of) for one in splits] == [(DRIVER, (("580", 4), ("570", 4)), 8)]


def test_hosts_with_other_gpus_are_compared_among_their_own() -> None:
    h100 = valued(["580"] * 6)
    t4 = [Summary(f"t{number}", values={DRIVER: "550"}, gpu="T4") for number in range(1, 5)]
    odd = Summary("t9", values={DRIVER: "470"}, gpu="T4")
    outliers, splits = find_outliers([*h100, *t4, odd])
    assert [(one.hosts, one.usual, one.kind) for one in outliers] == [(("t9",), "550", "T4")]
    assert splits == []


def test_a_slow_gpu_is_told_with_its_share() -> None:
    outliers, _ = find_outliers(rated([722, 719, 725, 478, 721]))
    (slow,) = outliers
    assert (slow.hosts, slow.value, slow.usual, slow.share) == (("n4",), "478 TFLOP/s on GPU 2", "721 TFLOP/s", 0.663)


def test_where_the_others_are_close_together_little_less_is_slow() -> None:
    assert find_outliers(rated([100, 99, 101, 100, 91, 100, 100]))[0] != []


@pytest.mark.parametrize(
    "summaries",
    [
        rated([100, 80, 120, 90, 110, 70, 130]),
        rated([100, 100, 100, 150]),
        [*rated([700] * 5), *rated([65] * 5, "T4", 11)],
        rated([100] * 5 + [50] * 4),
    ],
    ids=["far apart", "faster than the others", "beside a faster kind", "nearly half"],
)
def test_whose_rate_is_no_fault(summaries: list[Summary]) -> None:
    assert find_outliers(summaries)[0] == []


def test_chance_alone_makes_nobody_slow() -> None:
    noise = random.Random(11)
    suspected = sum(
        len(one.hosts)
        for _ in range(20)
        for one in find_outliers(rated([noise.gauss(700, 25) for _ in range(1000)]))[0]
    )
    assert suspected == 0
