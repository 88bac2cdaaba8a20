"""No secret enters: they are planted wherever a machine or a paste may hold one, and none is in any command's output,
any format or any file that is kept. What only looks like a secret stays whole.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import zlib
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.app import pipeline, reading
from gpudoctor.app.arguments.options import FORMS
from gpudoctor.app.commands.record import recorded
from gpudoctor.app.commands.reports import rendered
from gpudoctor.app.redaction import Redactor
from gpudoctor.cluster.fleet.reading import Reply, ReplyReader
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.run import Output
from gpudoctor.core.secrets import without_secrets
from gpudoctor.diagnosis import history as kept
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.compare import compare
from gpudoctor.diagnosis.expect import writing
from gpudoctor.fixes import plan
from gpudoctor.fixes.steps import commands
from gpudoctor.target.record import to_json
from gpudoctor.target.recording import Recording
from gpudoctor.views import diff, document
from gpudoctor.views import plan as plan_view
from tests.conftest import Program
from tests.guard.pages import opened
from tests.probes.trees import Tree
from tests.sim import scenario

BOOK = rulebook.load()

VARIABLES = {
    "HF_TOKEN": "hf_zq01AbCdEfGhIjKlMnOpQrStUvWxYz",
    "WANDB_API_KEY": "zq02a9c0ffee9c0ffee9c0ffee9c0ffee9c0ffee",
    "AWS_SECRET_ACCESS_KEY": "zq03/AbCdEfGh+IjKlMnOpQr0StUvWxYz",
    "AWS_ACCESS_KEY_ID": "AKIAZQ04ABCDEFGHIJKL",
    "VLLM_API_KEY": "zq05-anything",
    "NGC_API_KEY": "zq06-anything-4711",
    "TF_VAR_database": "zq07-anything-4711",
    "NVIDIA_REGISTRY_PASSWORD": "zq08words",
    "NCCL_NET_PLUGIN": "https://me:zq09pass@plugins.example.org/ofi",
    "XLA_FLAGS": "--xla_dump_to=/tmp/x --upload_token=zq10abcdef",
    "PIP_INDEX_URL": "https://me:zq11pass@packages.example.org/simple",
    "UV_INDEX_URL": "https://zq12token@packages.example.org/simple",
    "HTTPS_PROXY": "http://me:zq13pass@proxy.example.org:3128",
    "CONDA_CHANNELS": "https://conda.anaconda.org/t/zq-14aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee/main",
    "CC": "gcc -DDB_PASSWORD=zq15pass",
    "LD_LIBRARY_PATH": "/opt/lib:/mnt/https://me:zq16pass@host/lib",
    "SLURM_JWT": "eyJzq17AbCdEfGhIjKl.eyJAbCdEfGhIjKl.sIgNaTuRe",
    "MASTER_ADDR": "http://me:zq18pass@10.1.2.3",
    "APPTAINER_DOCKER_PASSWORD": "zq19pass",
    "UCX_NET_DEVICES": "ghp_zq20AbCdEfGhIjKlMnOpQrStUvWxYz01234567",
}
FILES = {
    "/proc/cmdline": "ro quiet rd.luks.key=zq21key0aB ds=nocloud;s=http://me:zq22pass@meta.example.org/\n",
    "/etc/nccl.conf": "NCCL_DEBUG=INFO\nNCCL_AUTH_TOKEN=zq23token\nNCCL_NET=https://me:zq24pass@h/\n",
    "/var/log/apt/history.log": (
        "Start-Date: 2026-11-20  10:00:00\n"
        "Commandline: apt-get install nvidia-driver-580 -o Acquire::http::Proxy=http://me:zq25pass@proxy:3128\n"
        "Requested-By: ubuntu (1000)\nUpgrade: nvidia-driver-580:amd64 (580.65.06, 580.95.05)\n"
        "End-Date: 2026-11-20  10:01:00\n"
    ),
}
NEVER_READ = {
    ".netrc": "machine packages.example.org login me password zq26pass\n",
    ".config/pip/pip.conf": "[global]\nindex-url = https://me:zq27pass@packages.example.org/simple\n",
    ".config/uv/uv.toml": 'index-url = "https://me:zq28pass@packages.example.org/simple"\n',
    ".condarc": "channels:\n  - https://conda.anaconda.org/t/zq-29aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee/x\n",
    ".docker/config.json": '{"auths": {"nvcr.io": {"auth": "enEzMHBhc3N6cTMwcGFzcw=="}}}\n',
    ".cache/huggingface/token": "hf_zq31AbCdEfGhIjKlMnOpQrStUvWxYz",
}
LINES = (
    "torchrun --nproc-per-node 8 train.py --wandb-key zq32abcdef --hf_token=zq33abcdef --lr 0.1: CUDA error",
    "root 4711 python3 serve.py --api-key zq34abcdef --password=zq35words -p 8000",
    "docker login nvcr.io -u '$oauthtoken' -p zq36abcdef; docker run -p 8080:80 nvcr.io/nvidia/pytorch:25.01-py3",
    "curl -u admin:zq37words https://registry.example.org/v2/ -H 'Authorization: Bearer zq38abcdefghijkl'",
    '    "Env": ["PATH=/usr/bin", "HF_TOKEN=zq39abcdef", "CUDA_VERSION=12.8"],',
    'Environment="WANDB_API_KEY=zq40abcdef0123456789" "CUDA_VISIBLE_DEVICES=0"',
    'direct_url.json: {"url": "git+https://me:zq41abcdef@github.com/x/y.git", "vcs_info": {"vcs": "git"}}',
    "twine upload --username __token__ --password pypi-zq42AbCdEfGhIjKlMnOp dist/torch-2.9.0.whl",
    "machine packages.example.org login me password zq43words",
    "Cookie: session=zq44abcdef; other=zq45abcdef",
    "RuntimeError: CUDA error: no kernel image is available; see https://x.org/?X-Amz-Signature=zq46abcdef0123&a=1",
    'nvidia-container-cli: auth: {"auth": "enE0N2FiY2RlZg==", "registry": "nvcr.io"}',
    "NCCL WARN mysql -u root -pzq48words: connection refused",
    "srun --export=ALL,HF_TOKEN=zq49abcdef,NCCL_DEBUG=INFO python train.py",
    "AccountKey=zq50AbCdEfGhIjKlMnOpQr0==;EndpointSuffix=core.windows.net",
    "-----BEGIN OPENSSH PRIVATE KEY-----",
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABzq51AbCdEfGh",
    "c2hvcnQtZW5kzq52",
    "-----END OPENSSH PRIVATE KEY-----",
    "xoxb-zq53-4711-AbCdEfGhIjKl nvapi-zq54AbCdEfGhIjKlMnOp0 glpat-zq55AbCdEfGhIjKlMnOp0",
)
HARMLESS = (
    "NCCL_SOCKET_IFNAME=eth0 CUDA_VISIBLE_DEVICES=GPU-8b0e7153-bf7c-3706-d85c-524e44006655",
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-8b0e7153-bf7c-3706-d85c-524e44006655)",
    "TOKENIZERS_PARALLELISM=false max_tokens=4096 pad_token=<pad> eos_token_id: 128000 HF_TOKEN_PATH=/srv/token",
    "/data/tokens/secret-sauce/password.txt: cannot open shared object file",
    "libtorch_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi; torch 2.9.0+git9f3c1e5b7a2d4c6e8f0a",
    "docker run -p 8080:80 --gpus all nvcr.io/nvidia/pytorch@sha256:9f3c1e5b7a2d4c6e8f0a1b3c5d7e9f1a2b4c6d8e",
    "sig_key: 5F:F1:2A:00 signer: DKMS module signing key; module verification failed: signature missing",
    "KeyError: 'model.layers.0.weight'; Unexpected key(s) in state_dict: encoder.weight",
    "next_token = torch.multinomial(probs, 1) in sample(self.tokenizer, key=lambda x: x[1])",
    "git@github.com:pytorch/pytorch NCCL_IB_PKEY=0x8001 UCX_IB_PKEY=0xffff -u root bond0:mlx5_0",
    "http://download.pytorch.org/whl/cu128 https://conda.anaconda.org/t/nvidia/label 127.0.0.1:29500",
)

SECRETS = (*(f"zq{number:02}" for number in range(1, 56)), "enEzMHBh", "enE0N2Fi")


def seen(text: str) -> list[str]:
    """The planted secrets that are to be read in it."""
    lower = text.lower()
    return [word for word in SECRETS if word.lower() in lower or f"zq-{word[2:]}" in lower]


@lru_cache(maxsize=1)
def machine() -> str:
    """A simulated machine with a secret in every place that its probes look at, as the text of its record."""
    raw = to_json(scenario.load(scenario.PROFILES / "rtx4090.json"))
    host = raw["host"]
    host["environ"].update(VARIABLES)
    host["files"].update(FILES)
    host["files"].update({f"/root/{name}": text for name, text in NEVER_READ.items()})
    host["files"]["/dev/kmsg"] += "".join(
        f"4,{9000 + at},{99000000 + at},-;NVRM: {line}\n" for at, line in enumerate(LINES)
    )
    raw["nvml"].setdefault("every", {})["nvmlDeviceGetName"] = "NVIDIA RTX https://me:zq01pass@x/"
    raw["torch_child"] = {"out": [], "err": "\n".join(("Traceback (most recent call last):", *LINES)), "status": 1}
    raw["level"] = "standard"
    return json.dumps(raw)


@lru_cache(maxsize=1)
def diagnoses() -> dict[str, Diagnosis]:
    """Of the machine, and of pastes of each kind; the last one is of a document that another program wrote."""
    manifest = "\n".join((LINES[7], "flash-attn @ git+https://me:zq41abcdef@github.com/x/y.git", "torch==2.9.0"))
    texts = {
        "machine": machine(),
        "log": "\n".join(LINES),
        "colours": "\n".join(f"\x1b[31m{line[:20]}\x1b[1m{line[20:]}\x1b[0m" for line in LINES),
        "environment": "\n".join(f"export {name}={value}" for name, value in VARIABLES.items() if "TF_" not in name),
        "requirements.txt": manifest,
        "Dockerfile": "FROM nvcr.io/nvidia/pytorch:25.01-py3\nENV HF_TOKEN=zq39abcdef\nRUN pip install " + LINES[7],
        "homes": "\n".join(f"$ cat ~/{name}\n{text}" for name, text in NEVER_READ.items()),
    }
    found = {name: reading.diagnose_text(text, name, BOOK, None, None) for name, text in texts.items()}
    strange: Any = found["log"].to_json()
    strange["facts"]["text"] = [{"line": {"value": line, "source": "the log"}} for line in LINES]
    strange["facts"]["env.NOTE"] = {"value": LINES[0], "source": "environment"}
    found["saved"] = reading.diagnose_text(json.dumps(strange), "saved", BOOK, None, None)
    return found


@pytest.mark.parametrize("shared", [False, True], ids=["as it is", "shared"])
@pytest.mark.parametrize(
    "name", ["machine", "log", "colours", "environment", "requirements.txt", "Dockerfile", "homes", "saved"]
)
def test_no_format_holds_a_secret(name: str, shared: bool) -> None:
    diagnosis = diagnoses()[name]
    told = Redactor(this_machine=False)(diagnosis) if shared else diagnosis
    for form in FORMS:
        assert seen(rendered(told, form, sys.stdout)) == [], form
    assert seen(document.facts(told.snapshot, "1")) == []
    assert seen(repr(told)) == []


def test_no_comparison_profile_plan_or_kept_run_holds_a_secret() -> None:
    found = diagnoses()
    difference = compare(found["machine"], found["environment"])
    assert seen(diff.document(difference) + diff.render(difference, ("a", "b"))) == []
    assert seen(writing.profile_text([found["machine"].snapshot], "2026-11-24")) == []
    for diagnosis in found.values():
        made = plan.plan_for(diagnosis)
        assert seen(json.dumps(made.to_json()) + plan_view.render(made)) == []
        whole = kept.pack_run(diagnosis, "1", {})
        first = zlib.decompressobj(wbits=31)
        head = first.decompress(whole)
        assert seen((head + zlib.decompress(first.unused_data, 31)).decode()) == []


def test_no_record_holds_a_secret_and_home_files_of_credentials_are_not_read(tmp_path: Path) -> None:
    tree = Tree(tmp_path).linux().gpu().driver("580.95.05")
    for path, text in FILES.items():
        tree.file(path, text)
    for name, text in NEVER_READ.items():
        tree.file(f"/home/me/{name}", text)
    target = Recording("quick", root=str(tmp_path), environ={**VARIABLES, "HOME": "/home/me", "PATH": "/usr/bin"})
    diagnosis = pipeline.check("quick", target=target)
    assert not [path for path in target.seen.files if any(path.endswith(name) for name in NEVER_READ)]
    record = json.dumps(to_json(recorded(target, diagnosis)))
    assert seen(record) == []
    again = reading.snapshot_of(record)
    assert again.get("host.kernel_command_line") == diagnosis.snapshot.get("host.kernel_command_line")


def test_no_reply_of_a_host_brings_a_secret() -> None:
    raw: Any = next(one for one in diagnoses().values() if one.findings).to_json()
    raw["findings"][0]["why"] = LINES[0]
    reader = ReplyReader(BOOK)
    for reply in (Reply(json.dumps(raw), "node1"), Reply("", "node2", because=LINES[3]), Reply(LINES[3], "node3")):
        for summary in reader.summaries(reply):
            assert seen(repr(summary)) == []
    assert seen(repr(reader.examples)) == []


def test_what_a_command_of_a_fix_prints_is_kept_without_secrets() -> None:
    output = Output()

    def heard(text: str) -> None:
        nonlocal output
        output = output.add(text)

    script = f"import sys\nfor sign in {chr(10).join(LINES[:15])!r}: sys.stdout.write(sign); sys.stdout.flush()"
    outcome = commands.run_command([sys.executable, "-c", script], {"PATH": "/usr/bin"}, heard, lambda: "go on")
    assert outcome.status == 0
    assert len(output.lines) == 15
    assert seen("\n".join(output.lines)) == []


def test_what_a_child_says_of_a_variable_is_hidden_by_its_value(tmp_path: Path) -> None:
    target = Tree(tmp_path).linux(command_line="ro note=hunter2hunter2").target(DB_PASSWORD="hunter2hunter2")
    snapshot = pipeline.look("quick", target=target)
    assert "hunter2hunter2" not in repr(snapshot)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert without_secrets(text) == text
    assert text in repr(reading.snapshot_of(f"CUDA error\n{text}\n")).replace("\\'", "'")


@dataclass(frozen=True)
class Place:
    """A home with files of credentials, a paste and a record with secrets, a folder for state, and the environment."""

    home: Path
    paste: Path
    record: Path
    state: Path
    env: dict[str, str]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home, files, state = (tmp_path / name for name in ("home", "files", "state"))
    files.mkdir()
    for name, text in NEVER_READ.items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (files / "paste.txt").write_text("\n".join(LINES))
    (files / "record.json").write_text(machine())
    env = {
        **{name: value for name, value in VARIABLES.items() if name not in ("LD_LIBRARY_PATH", "MASTER_ADDR")},
        "HOME": str(home),
        "GPUDOCTOR_HISTORY": "on",
        "GPUDOCTOR_STATE": str(state),
    }
    return Place(home, files / "paste.txt", files / "record.json", state, env)


def _printed(gpudoctor: Program, place: Place) -> list[tuple[object, str]]:
    """What each command prints."""
    quick = ("--level", "quick")
    printed: list[tuple[object, str]] = []
    for words in (
        ("check", *quick, "--json"),
        ("check", *quick),
        ("snapshot", *quick, "-o", str(place.state / "snapshot.json")),
        ("record", *quick, "-o", str(place.state / "record.json")),
        ("diff", "--last-good"),
        ("history", "--json"),
        ("expect", "--from-here", "-o", str(place.state / "here.toml")),
        ("diff", str(place.state / "snapshot.json"), str(place.paste), "--json"),
        ("fix", "--dry-run", "--json"),
        ("fix", "--dry-run", "--read", str(place.paste)),
        ("setup", "torch", "--offline", "--json"),
        ("preflight", "--network", "--json"),
        ("explain", "env.HF_TOKEN"),
        ("read", str(place.paste), "--json"),
        ("read", "https://me:zq01pass@nowhere.example.org/x"),
        ("bench", "--device", "cpu", "--kernel", "https://me:zq01pass@x/"),
    ):
        done = gpudoctor(*words, env=place.env)
        assert done.code in (0, 1, 2, 3), done.err
        printed.append((words, done.out + done.err))
    assert len([file for file in place.state.rglob("*") if file.is_file()]) >= 4
    return printed


def _answered(gpudoctor: Program, place: Place) -> list[tuple[object, str]]:
    """What the tools of ``mcp`` answer, with names hidden and without."""
    from mcp import Client, StdioServerParameters  # heavy: not for whoever only collects

    topics = ["env", "host", "text", "setting", "python", "torch", "gpu", "nccl"]
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("check", {"level": "quick", "facts": topics}),
        ("read", {"text": place.paste.read_text(), "facts": topics}),
        ("read_file", {"path": place.record.name, "facts": topics}),
        ("read_file", {"path": LINES[3]}),
        ("read", {"text": "torch", "machine": LINES[0]}),
        ("explain", {"id": "env.HF_TOKEN"}),
        ("explain", {"id": "hf_zq01AbCdEfGhIjKlMnOpQrStUvWxYz"}),
        ("setup", {"machine": "gpu=H100,python=3.12", "want": [LINES[7]]}),
    )

    async def answers(*more: str) -> list[tuple[object, str]]:
        words = ["-m", "gpudoctor", "mcp", "--folder", str(place.record.parent), *more]
        server = StdioServerParameters(command=sys.executable, args=words, env={**os.environ, **place.env})
        async with Client(server, read_timeout_seconds=240) as client:
            answers = [await client.call_tool(*call) for call in calls]
        assert not any(answer.is_error for answer in answers[:3])
        return [(call, repr(answer)) for call, answer in zip(calls, answers, strict=True)]

    return [*asyncio.run(answers()), *asyncio.run(answers("--no-share"))]


def _drawn(gpudoctor: Program, place: Place) -> list[tuple[object, str]]:
    """What ``--serve`` sends to a browser that shows the diagnosis, copies the report, and shows every fact."""
    looks = (("check", "--level", "quick"), ("read", str(place.record), "--tui"))

    async def drawn(words: tuple[str, ...]) -> tuple[object, str]:
        async with opened(words, place.env) as page:
            await page.wait_for("passed")
            await page.press("y", "\x07")
            await page.press("3", "env.XLA_FLAGS")
        copied = re.findall(r"\x1b\]52;c;([^\x07]+)\x07", page.drawn)
        assert copied
        return words, page.text + "".join(b64decode(one).decode() for one in copied)

    return [asyncio.run(drawn(words)) for words in looks]


@pytest.mark.parametrize("outputs", [_printed, _answered, pytest.param(_drawn, marks=pytest.mark.full)])
def test_the_program_gives_away_and_keeps_no_secret(
    outputs: Callable[[Program, Place], list[tuple[object, str]]], gpudoctor: Program, place: Place
) -> None:
    for asked, text in outputs(gpudoctor, place):
        assert seen(text) == [], asked
    for file in place.state.rglob("*"):
        assert file.is_dir() or seen(_told(file)) == [], file


def _told(place: Path) -> str:
    """The text of a file, unpacked; of a record all but the machine code of libraries."""
    data, parts = place.read_bytes(), []
    while data.startswith(b"\x1f\x8b"):
        member = zlib.decompressobj(wbits=31)
        parts.append(member.decompress(data))
        data = member.unused_data
    text = b"".join([*parts, data]).decode("utf-8", "replace")
    if place.name != "record.json":
        return text
    raw = json.loads(text)
    return json.dumps({**raw, "host": {**raw["host"], "bytes": {}, "sparse": {}}})
