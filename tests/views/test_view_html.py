"""The report as one file: nothing to load, nothing foreign in its markup, pictures that are true and said in words."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import permutations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpudoctor.core.diagnosis import Diagnosis, Note
from gpudoctor.core.fact import Known, listed
from gpudoctor.core.fleet import Fleet, Host, Pairwise
from gpudoctor.core.measurement import Measurements, Run
from gpudoctor.kernels import facts, ladder, specs
from gpudoctor.views import document, html, plots
from tests import measured
from tests.conftest import Program
from tests.views.tui.machines import diagnosis_of

_VOID = {"meta"}


class Document(HTMLParser):
    """Tags with their attributes, and the text between them; every tag that is opened is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opened."""
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Closed: the last one that was opened."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Between tags."""
        self.text.append(data)


def page_of(diagnosis: Diagnosis) -> Document:
    """The report, parsed."""
    return Document(html.render(diagnosis))


def test_it_says_what_the_text_says() -> None:
    diagnosis = diagnosis_of("too-old-b200")
    page = page_of(diagnosis)
    said = "\n".join(page.text)
    for words in (
        "✗ Broken: the finding below is why",
        "The driver is older than the B200: 550.163.01 is installed",
        "The same of gpu 1, gpu 2, gpu 3, gpu 4, gpu 5, gpu 6, gpu 7.",
        "What to do: Install a newer driver (NVIDIA's repository for Ubuntu and Debian)",
        "apt-get install --yes nvidia-open",
        "gpu[0].name",
        f"{len(diagnosis.unjudged)} rules were not judged",
        f"{len(diagnosis.passed)} rules passed",
    ):
        assert words in said
    assert page.tags.count("section") == 1


def test_what_is_to_be_borne_in_mind_is_told() -> None:
    note = "More than one document of node7: the later one counts."
    assert note in page_of(replace(diagnosis_of("too-old-b200"), notes=(Note((), note),))).text


def test_nothing_is_loaded_and_both_colour_schemes_are_there() -> None:
    text = html.render(diagnosis_of("too-old-b200"))
    page = Document(text)
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not {"src", "href"} & {name for name, _ in page.attributes}
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text


def test_several_causes_are_put_in_order() -> None:
    page = page_of(diagnosis_of("torch-arch-dropped-and-driver-too-old"))
    assert page.tags.count("ol") == 1
    said = "".join(page.text)
    assert (
        said.index("To act on, in this order") < said.index("torch.arch-dropped") < said.index("torch.driver-too-old")
    )


PEERS = next(one.kernel for one in specs.all_kernels() if one.spec.id == "peer.copy")


def figures(diagnosis: Diagnosis, found: Measurements | None = None) -> dict[str, ElementTree.Element]:
    """Every picture by its caption, without what stands small behind it; each must be XML of its own."""
    text = "".join(plots.sections(diagnosis, found))
    drawn = [ElementTree.fromstring(one) for one in re.findall(r"<figure.*?</figure>", text)]
    return {(one.findtext("figcaption") or "").strip(): one for one in drawn}


def said(figure: ElementTree.Element) -> str:
    """What it says to who cannot see it."""
    return figure.findtext("svg/desc") or ""


def looks(figure: ElementTree.Element) -> list[str]:
    """How its bars or cells look, in order."""
    return [one.get("class", "") for one in figure.iter("rect") if one.get("class") != "band"]


def with_fleet(fleet: Fleet) -> Diagnosis:
    whole = diagnosis_of("hgx-h100")
    snapshot = replace(whole.snapshot, target=replace(whole.snapshot.target, kind="fleet"))
    return replace(whole, snapshot=snapshot, fleet=fleet)


def test_every_picture_has_a_name_and_says_itself() -> None:
    drawn = figures(diagnosis_of("throttled-heat-h100"), measured.node())
    assert len(drawn) > 12
    for figure in drawn.values():
        svg = figure.find("svg")
        assert svg is not None
        assert svg.get("role") == "img"
        assert [child.tag for child in svg][:2] == ["title", "desc"]
        assert svg.findtext("title")
        assert said(figure)


def test_kernels_stand_against_what_is_expected() -> None:
    drawn = figures(diagnosis_of("hgx-h100"), measured.node())
    bf16 = drawn["bf16 matmul 8192³ or less"]
    assert looks(bf16) == ["sound"] * 5 + ["warning", "error", "none"]
    assert "GPU 5: 403 TFLOP/s, 56% of 722, slow" in said(bf16)
    assert "GPU 6: 705 TFLOP/s, 98% of 722, and the answer is wrong" in said(bf16)
    assert [one.get("class") for one in bf16.iter("rect")].count("band") == 1
    heights = [float(one.get("height", 0)) for one in bf16.iter("rect") if one.get("class") in ("sound", "warning")]
    assert heights[5] / heights[0] == pytest.approx(0.56, abs=0.02)


def test_of_a_time_the_band_ends_where_slow_begins() -> None:
    launch = next(
        figure for name, figure in figures(diagnosis_of("hgx-h100"), measured.node()).items() if "launch" in name
    )
    band = next(one for one in launch.iter("rect") if one.get("class") == "band")
    bars = [one for one in launch.iter("rect") if one.get("class") == "sound"]
    assert float(band.get("height", 0)) > 10
    assert all(float(bar.get("y", 0)) > float(band.get("y", 0)) for bar in bars)


def test_copies_between_gpus_are_a_heat_map() -> None:
    rates = {f"{one}-{other}": 24.5 if 3 in (one, other) else 380 for one, other in permutations(range(8), 2)}
    run = Run(PEERS.id, -1, "ran", 24.5, details={"rates": {**rates, "x": 1, "0-9": "?"}, "wrong": ["2-4"]})
    node = measured.node()
    found = replace(node, kernels=(*node.kernels, PEERS), runs=(*node.runs, run))
    figure = figures(diagnosis_of("hgx-h100"), found)["Copies between GPUs"]
    assert len(looks(figure)) == 64
    assert looks(figure).count("error") == 14 + 1
    assert "GPU 2 GPU 4: 380 GB/s, and what arrived is wrong" in said(figure)


def test_heat_and_clocks_of_each_gpu_are_shown_with_their_limits() -> None:
    drawn = figures(diagnosis_of("throttled-heat-h100"))
    assert looks(drawn["Temperature"]) == ["plain"] * 5 + ["error"] + ["plain"] * 2
    assert looks(drawn["SM clock"])[5] == "warning"
    assert said(drawn["SM clock"]).startswith("GPU 5: 1110 MHz, at most 1980, held back: hw_slowdown")
    assert "Power" in drawn


def test_a_fleet_is_hosts_by_checks_and_hosts_by_hosts() -> None:
    drawn = figures(with_fleet(measured.rack()))
    checks, pairs = drawn["Hosts by checks"], drawn["NCCL send and receive, 256 MiB"]
    assert len(looks(checks)) == 8 * 10
    assert looks(checks).count("error") == 1
    assert "node07 drv: 570.124.06; the six others that answered run 580.95.05" in said(checks)
    assert len(looks(pairs)) == 64
    assert looks(pairs).count("error") == 2 * 6


def test_of_a_large_fleet_what_is_wrong_is_shown() -> None:
    drawn = figures(with_fleet(measured.cluster()))
    note = drawn["Hosts by checks"].findtext("figcaption/small")
    assert note == "7 of 64 hosts; the others pass every check"
    names = tuple(f"n{number}" for number in range(200))
    rows = tuple(tuple(None if a == b else 20.0 if 150 in (a, b) else 48.0 for b in range(200)) for a in range(200))
    fleet = Fleet("f", tuple(map(Host, names)), (), {}, "go", Pairwise("pairs", "GB/s", 48.0, names, rows))
    pairs = figures(with_fleet(fleet))["pairs"]
    assert len(looks(pairs)) == 64 * 64
    assert "n150 n0: 20.0 GB/s, 42%" in said(pairs)


def test_nothing_is_drawn_of_which_nothing_is_known() -> None:
    whole = diagnosis_of("hgx-h100")
    bare = replace(whole, snapshot=replace(whole.snapshot, facts={}, groups={}, timings_ms={}))
    assert list(plots.sections(bare, None)) == []


def test_foreign_text_and_numbers_stay_within_the_picture() -> None:
    evil = "</title></svg><script>alert(1)</script>\" onload='x' & \x1b[31m" + "x" * 5000
    row = {
        name: Known(value, evil)
        for name, value in (("index", 0), ("temperature_c", 1e300), ("clock_mhz", "hot"), ("power_w", -5))
    }
    whole = diagnosis_of("hgx-h100")
    snapshot = replace(whole.snapshot, groups={"gpu": (row,)}, timings_ms={evil: 1e12, "b": -3.0})
    odd = replace(whole, snapshot=snapshot, fleet=Fleet(evil, (Host(evil, because=evil), Host("b")), (), {}, "go"))
    node = measured.node()
    kernel = replace(node.kernels[0], title=evil, size=evil)
    found = replace(node, kernels=(kernel,), runs=(replace(node.runs[0], because=evil, words=evil),))
    for form in (html.render, html.cell):
        text = form(odd, found)
        assert "<script" not in text
        assert "\x1b" not in text
        assert len(text) < 200_000
    assert figures(odd, found)
    assert not {"src", "href", "onload"} & {name for one in figures(odd, found).values() for name in one.attrib}


def test_what_a_deep_check_measured_is_drawn_from_its_document(called: Program, tmp_path: Path) -> None:
    whole = diagnosis_of("hgx-h100")
    deep = tmp_path / "deep.json"
    deep.write_text(document.render(replace(whole, snapshot=facts.measured(whole.snapshot, measured.node()))))
    done = called("read", str(deep), "--format", "html")
    assert "<figcaption>bf16 matmul 8192³ or less" in done.out
    assert "GPU 6: 705 TFLOP/s, 97% of 724, and the answer is wrong" in done.out  # of its siblings


def test_what_the_tables_expect_is_recalled_with_what_was_measured() -> None:
    whole = diagnosis_of("hgx-h100")
    snapshot = facts.measured(whole.snapshot, measured.node())
    rows = listed(snapshot.rows("measured"))
    told = {"expected": Known(722.0, "tables"), "limit": Known(989.0, "tables")}
    found = ladder.measurements(replace(snapshot, groups={"measured": tuple({**row, **told} for row in rows[:8])}))
    bf16 = figures(whole, found)["bf16 matmul 8192³ or less"]
    assert "GPU 5: 403 TFLOP/s, 56% of 722, slow" in said(bf16)
    assert "989" in [one.text for one in bf16.iter("text")]
