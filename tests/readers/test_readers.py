"""The room of the readers: what may be handed in, how answers and pastes are merged, and that nothing breaks it."""

import gzip
from pathlib import Path

import pytest

from gpudoctor.app.pipeline import diagnose
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Absent, Fact, Known, Unread, listed
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.readers import WHOLE_FILE_BYTES, decode, read_file, read_text
from gpudoctor.readers._merge import better_fact, merged_rows
from gpudoctor.readers._paste import Paste
from gpudoctor.views._report import counts
from tests.conftest import Program
from tests.corpus import BOOK
from tests.readers.reading import column
from tests.readers.reading import rows as gpus

REPORT = """\
PyTorch version: 2.7.0.dev20250310+cu124
CUDA used to build PyTorch: 12.4
OS: Ubuntu 22.04.5 LTS
Python platform: Linux-6.8.0-64-generic-x86_64-with-glibc2.35
Is CUDA available: True
GPU models and configuration:\x20
GPU 0: NVIDIA GeForce RTX 5090
GPU 1: NVIDIA GeForce RTX 5090
Nvidia driver version: 570.124.06
cuDNN version: /usr/lib/x86_64-linux-gnu/libcudnn.so.8.9.0

$ nvidia-smi
| NVIDIA-SMI 570.124.06       Driver Version: 570.124.06     CUDA Version: 12.8     |
|   0  NVIDIA GeForce RTX 50... Off  | 00000000:01:00.0 Off |                  N/A |
|   1  NVIDIA GeForce RTX 50... Off  | 00000000:02:00.0 Off |                  N/A |

NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.
[pip3] torch==2.7.0.dev20250310+cu124
[conda] pytorch   2.1.0   py3.10_cuda11.8_cudnn8.7.0_0   pytorch
NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
node1:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.1.2.3<0>
export LD_LIBRARY_PATH=/usr/local/cuda-12.1/lib64:
GPU 0: NVIDIA A100 (UUID: GPU-5428af19-1e82-a38c-ee42-cdd3ad745b7e)
    PCIe Generation
compute mode: Exclusive_Process
ImportError: torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister
"""


def test_gpus_of_several_formats_become_one_row_each() -> None:
    first, second = gpus(read_text(REPORT.partition("GPU 0: NVIDIA A100")[0]))
    assert first == {
        "index": 0,
        "name": "NVIDIA GeForce RTX 5090",
        "address": "0000:01:00.0",
        "compute_capability": "12.0",
    }
    assert second == {**first, "index": 1, "address": "0000:02:00.0"}, "the warning is about every GPU of that name"


def test_rows_of_other_groups_are_listed_once_and_one_without_a_name_is_about_the_first_gpu() -> None:
    one = ({"index": Known(0, "a"), "name": Known("X", "a")}, {"index": Known(1, "a"), "name": Known("X", "a")})
    merged = listed(merged_rows(one, ({"compute_mode": Known("Default", "b")},), "gpu"))
    assert ["compute_mode" in row for row in merged] == [True, False]
    row = {"name": Known("torch", "line 1")}
    assert merged_rows((row,), ({"name": Known("torch", "line 9")},), "package") == (row,)


@pytest.mark.parametrize(
    ("one", "other", "winner"),
    [
        (Known("NVIDIA GeForce RTX 50...", "a"), Known("NVIDIA GeForce RTX 5090", "b"), 1),
        (Known("2.5.1", "a"), Known("2.5.1+cu124", "b"), 1),
        (Known("3.12", "a"), Known("3.12.3", "b"), 1),
        (Known("12.4", "a"), Known("12.1", "b"), 0),
        (Known("1.1", "a"), Known("1.12", "b"), 0),
        (Unread("x"), Absent("y"), 1),
        (Unread("x"), Unread("y"), 0),
        (Absent("x"), Known(1, "y"), 0),
        (Known(1, "x"), Unread("y"), 0),
    ],
)
def test_the_better_of_two(one: Fact, other: Fact, winner: int) -> None:
    assert better_fact(one, other) is (one, other)[winner]


def test_every_fact_is_declared() -> None:
    snapshot = read_text(REPORT)
    for name in snapshot.facts:
        assert catalog().find(name), name
    for group, rows in snapshot.groups.items():
        for row in listed(rows):
            for name in row:
                assert catalog().find(f"{group}.{name}"), f"{group}.{name}"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda text: f"```text\n{text}```\n",
        lambda text: "".join(f"> {line}\n" for line in text.splitlines()),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "".join(f"\x1b[32m{line}\x1b[0m\n" for line in text.splitlines()),
        lambda text: "".join(f"2025-11-21T08:00:00.123Z {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"{n:4} | {line}\n" for n, line in enumerate(text.splitlines(), 1)),
        lambda text: "".join(f"  {line}\n" for line in text.splitlines()),
        lambda text: "Hallo, hier mein Bericht: es geht nicht!\n\n" + text + "\n\nDanke",
    ],
)
def test_what_people_put_around_a_report(wrap: object) -> None:
    assert callable(wrap)
    plain, wrapped = read_text(REPORT[:600]), read_text(wrap(REPORT[:600]))
    for name in ("torch.version", "torch.cuda", "host.os", "driver.version", "live.cuda_available", "host.kernel"):
        fact = plain.facts[name]
        assert isinstance(fact, Known)
        found = wrapped.facts[name]
        assert isinstance(found, Known), name
        assert found.value == fact.value
    assert [row["name"] for row in gpus(wrapped)] == [row["name"] for row in gpus(plain)]


def test_sources_and_placed_lines_count_the_lines_of_the_paste() -> None:
    assert read_text("\n\n> driver: 550.54\n").get("driver.version") == Known("550.54", "line 3")
    snapshot = read_text("OS: Ubuntu 22.04\n\nsomething else entirely\n")
    assert (snapshot.get("report.lines"), snapshot.get("report.placed")) == (
        Known(2, "the paste"),
        Known(1, "the paste"),
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("hi all\n```\nit is slow\n\n```\n", "0 lines"),
        (
            "hi all\n```\n+ nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch\n```\nthanks\n",
            "1 line",
        ),
        ("OS: Ubuntu 22.04\n\nTorch not compiled with CUDA enabled\nsomething else\n", "2 lines"),
        ("OS: Ubuntu 22.04\n", "1 line"),
    ],
)
def test_the_report_counts_the_lines_that_gave_a_fact_or_matched_a_sign(text: str, lines: str) -> None:
    assert counts(diagnose(read_text(text), BOOK)).endswith(f"; {lines} of the report gave a fact or matched a sign")


def _log(size: int) -> str:
    line = "[2025-01-01 00:00:{:02d},123] INFO step {} loss 0.{} the quick brown tensor jumps over the lazy batch\n"
    noise = "".join(line.format(n % 60, n, n * 7919) for n in range(20000))
    return (noise * (size // len(noise) + 1))[:size]


def test_a_log_of_many_megabytes() -> None:
    half = _log(15 << 20)
    text = f"{half}\nNVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n{half}\nRuntimeError: NCCL error: x\n"
    snapshot = read_text(text)
    assert "report.trouble" not in snapshot.facts, snapshot.facts["report.trouble"]
    lines = list(map(str, column(snapshot, "text", "line")))
    assert len(lines) <= 4000
    assert sum(map(len, lines)) <= 512 << 10
    assert "RuntimeError: NCCL error: x" in lines
    number = half.count("\n") + 2
    assert snapshot.get("kernel_log.first_xid") == Known(79, f"line {number}")


def test_of_a_large_log_every_xid_is_kept_once() -> None:
    xids = "".join(
        f"[{n}.0] NVRM: Xid (PCI:0000:{n % 2:02x}:00): {(13, 48)[n % 2]}, pid={n}, name=x\n" for n in range(50000)
    )
    assert column(xids, "xid", "code") == [13, 48]


@pytest.mark.parametrize(
    "text", ["x" * 2_000_000, "\n" * 2_000_000 + "x", "a: " * 600_000, "| " * 600_000, "\r" * 2_000_000]
)
def test_shapeless_masses(text: str) -> None:
    snapshot = read_text(text)
    assert "report.trouble" not in snapshot.facts, snapshot.facts["report.trouble"]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "empty"),
        (b" \n\t\r\n", "empty"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0" * 9, "binary"),
        (bytes(range(256)) * 4, "binary"),
    ],
)
def test_what_is_no_report(raw: bytes, words: str) -> None:
    with pytest.raises(DocumentError, match=words) as caught:
        decode(raw, "name\x1b[31m")
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "raw",
    [
        "driver: 550.54 ü".encode(),
        b"\xef\xbb\xbfdriver: 550.54",
        "driver: 550.54 ü".encode("utf-16"),
        "driver: 550.54".encode("utf-16-le"),
        bytes(5000) + b"driver: 550.54",
        "driver: 550.54 ü\n".encode("cp1252") * 200,
    ],
)
def test_encodings(raw: bytes) -> None:
    fact = read_text(decode(raw, "x")).get("driver.version")
    assert isinstance(fact, Known)
    assert fact.value == "550.54"


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for name in (tmp_path, tmp_path / "missing", "nul\0byte"):
        with pytest.raises(DocumentError, match="give a text file"):
            read_file(str(name))
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8b\x08broken")
    with pytest.raises(DocumentError, match="broken gzip file"):
        read_file(str(tmp_path / "broken.gz"))
    with pytest.raises(DocumentError, match="larger than 32 MB"):
        decode(b"x" * (WHOLE_FILE_BYTES + 1), "log")


def test_logs_that_were_joined_once_packed_are_read_to_their_end(tmp_path: Path) -> None:
    (tmp_path / "kern.log.gz").write_bytes(gzip.compress(b"first\n") + gzip.compress(b"second\n"))
    assert read_file(str(tmp_path / "kern.log.gz")) == "first\nsecond\n"


def test_a_paste_keeps_prompts_apart() -> None:
    paste = Paste("$ nvidia-smi -L\n(env) root@x:/# ulimit -l\nC:\\Users\\me> nvcc -V\n# a heading\n>>> import torch\n")
    assert paste.commands == {0: "nvidia-smi -L", 1: "ulimit -l", 2: "nvcc -V", 4: "import torch"}


COMPLAINT = "PyTorch version: 2.5.1+cu124\n>>> torch.cuda.is_available()\nFalse\n"
SMI_ERROR = "$ nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.107\n"
REFUSED = "$ sudo modprobe nvidia\nmodprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n"


def _save(folder: Path, *texts: str) -> list[str]:
    names = []
    for number, text in enumerate(texts, 1):
        (folder / f"{number}.txt").write_text(text)
        names.append(str(folder / f"{number}.txt"))
    return names


@pytest.mark.parametrize(
    ("first", "second", "alone", "cause"),
    [
        (COMPLAINT, SMI_ERROR, "torch.cuda-unavailable", "driver.version-mismatch"),
        (COMPLAINT, REFUSED, "torch.cuda-unavailable", "driver.secure-boot"),
    ],
)
def test_the_second_paste_names_the_cause_that_the_first_left_open(
    called: Program, tmp_path: Path, first: str, second: str, alone: str, cause: str
) -> None:
    names = _save(tmp_path, first, second)
    assert called("read", "--json", names[0]).document["findings"][0]["id"] == alone
    document = called("read", "--together", "--json", *names).document
    assert document["findings"][0]["id"] == cause
    assert alone in document["findings"][0]["explains"]
    assert document["target"]["name"] == " + ".join(names)
    sources = [item["source"] for item in document["findings"][0]["evidence"]]
    assert any(source.startswith(f"{names[1]}, line ") for source in sources)


def test_where_the_files_do_not_agree_the_later_is_believed_and_the_report_says_so(
    called: Program, tmp_path: Path
) -> None:
    names = _save(tmp_path, "PyTorch version: 2.5.1\nDriver Version: 535.54.03\n", "PyTorch version: 2.6.0+cu124\n")
    document = called("read", "--together", "--json", *names).document
    assert document["facts"]["torch.version"] == {"value": "2.6.0+cu124", "source": f"{names[1]}, line 1"}
    [note] = document["notes"]
    assert "torch.version: 2.5.1 and then 2.6.0+cu124; 2.6.0+cu124 is taken" in note["text"]
    assert "driver.version" not in note["text"]


def test_of_files_read_together_a_fuller_answer_is_no_clash_and_rows_of_one_gpu_become_one(
    called: Program, tmp_path: Path
) -> None:
    gpu = "GPU 0: NVIDIA H100 80GB HBM3"
    names = _save(
        tmp_path, f"PyTorch version: 2.5.1+cu124\n{gpu}\n", f"PyTorch version: 2.5.1\n{gpu} (UUID: GPU-5c3a)\n"
    )
    document = called("read", "--together", "--json", *names).document
    assert document["facts"]["torch.version"]["value"] == "2.5.1+cu124"
    assert document["facts"]["report.lines"]["value"] == 4
    assert document["notes"] == []
    [row] = document["facts"]["gpu"]
    assert (row["name"]["value"], row["uuid"]["value"]) == ("NVIDIA H100 80GB HBM3", "GPU-5c3a")


def test_a_saved_snapshot_is_read_with_the_log_of_a_job(called: Program, tmp_path: Path) -> None:
    saved = tmp_path / "node.json"
    saved.write_text(called("snapshot", "--level", "quick").out)
    [log] = _save(tmp_path, "RuntimeError: Address already in use: bind failed, EADDRINUSE, port: 29500\n")
    document = called("read", "--together", "--json", str(saved), log).document
    assert document["target"]["kind"] == "snapshot"
    assert "host.kernel" in document["facts"]
    assert "nccl.port-in-use" in [finding["id"] for finding in document["findings"]]


def _cures(report: str, rule: str) -> list[str]:
    """The titles of what is to be done about a report's finding of that rule."""
    finding = next(one for one in diagnose(read_text(report), BOOK).findings if one.id == rule)
    return [fix.title for fix in finding.fixes]


JAX = """\
$ nvidia-smi
| NVIDIA-SMI {driver}             Driver Version: {driver}   CUDA Version: {cuda}     |
|   0  NVIDIA A100-SXM4-40GB          On  | 00000000:00:04.0 Off |                    0 |
$ conda list
jax                       0.7.2              pyhd8ed1ab_0    {channel}
jaxlib                    0.7.2           cpu_py312h2d3a0e5_0    {channel}
An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to cpu.
"""


def test_jax_is_cured_by_what_installed_it_on_a_driver_that_serves_it() -> None:
    by_conda = JAX.format(driver="535.183.01", cuda="12.2", channel="conda-forge")
    assert _cures(by_conda, "jax.gpu-libs") == ["Install conda-forge's CUDA build"]
    by_pip = JAX.format(driver="470.57.02", cuda="11.4", channel="pypi")
    assert _cures(by_pip, "jax.gpu-libs")[:2] == [
        "First a driver that serves CUDA 12: branch 525 or newer",
        "Install jax, jaxlib and the plugin together",
    ]


@pytest.mark.parametrize("gpu", ["GeForce RTX 5090", "H100 80GB HBM3"])
def test_a_driver_for_a_linux_that_is_not_named_is_one_choice_of_all(gpu: str) -> None:
    report = f"GPU models and configuration: GPU 0: NVIDIA {gpu}\nNvidia driver version: 470.57.02\n"
    general = ["Install a newer driver (by the distribution's own packages)"]
    assert _cures(report, "driver.too-old-for-gpu") == general
    assert _cures(f"OS: Ubuntu 24.04.3 LTS (x86_64)\n{report}", "driver.too-old-for-gpu") != general
