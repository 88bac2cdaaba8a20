"""The report as one file: a document that a browser takes, with nothing to load and nothing foreign in its markup."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

from gpudoctor.core.diagnosis import Diagnosis, Evidence, Note, Unjudged
from gpudoctor.core.fact import Absent, Known
from gpudoctor.core.rule import Fix, Step
from gpudoctor.views import html
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


def document(diagnosis: Diagnosis) -> Document:
    """The report, parsed."""
    return Document(html.render(diagnosis))


def test_it_says_what_the_text_says() -> None:
    diagnosis = diagnosis_of("too-old-b200")
    page = document(diagnosis)
    said = "\n".join(page.text)
    for words in (
        "✗ Broken: the first finding is the one to act on first",
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
    assert note in document(replace(diagnosis_of("too-old-b200"), notes=(Note((), note),))).text


def test_nothing_is_loaded_and_both_colour_schemes_are_there() -> None:
    text = html.render(diagnosis_of("too-old-b200"))
    page = Document(text)
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not {"src", "href"} & {name for name, _ in page.attributes}
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text


def test_foreign_text_makes_no_tag_and_no_attribute() -> None:
    whole = diagnosis_of("too-old-b200")
    plain = document(replace(whole, findings=whole.findings[:1]))
    evil = "</section><script>alert(1)</script>\" onload='x' & \x1b[31m"
    finding = replace(
        whole.findings[0],
        id=evil,
        title=evil,
        why=evil,
        confirm=evil,
        confidence="likely",
        explains=(evil,),
        evidence=(Evidence(evil, Known(evil, evil)), Evidence(evil, Absent(evil))),
        fixes=(Fix(evil, (Step(("echo", evil), evil, ("root",)),), undo=evil),),
        by_rule=(evil,),
    )
    odd = replace(whole, findings=(finding,), notes=(Note((), evil),), unjudged=(Unjudged(evil, evil),), passed=(evil,))
    page = document(odd)
    assert set(page.tags) <= set(plain.tags) | {"p"}
    assert {name for name, _ in page.attributes} == {name for name, _ in plain.attributes}
    assert "".join(page.text).count("<script>alert(1)</script>") > 10
    assert "\x1b" not in html.render(odd)


def test_several_causes_are_put_in_order() -> None:
    page = document(diagnosis_of("torch-arch-dropped-and-driver-too-old"))
    assert page.tags.count("ol") == 1
    said = "".join(page.text)
    assert (
        said.index("To act on, in this order") < said.index("torch.arch-dropped") < said.index("torch.driver-too-old")
    )
