"""``gpudoctor.watch()`` and the callbacks of frameworks: the same account from within a training, on by one line."""

import os
import subprocess
import sys
import sysconfig

import pytest

from tests import needs
from tests.app.monitoring.running import PATIENCE, End

OOM = (
    "CUDA out of memory. Tried to allocate 786.00 MiB. GPU 0 has a total capacity of 79.11 GiB of which 140.75 MiB"
    " is free."
)
DEFINED = f"class OutOfMemoryError(RuntimeError): __module__ = 'torch'\ndef fail(): raise OutOfMemoryError({OOM!r})\n"

TRANSFORMERS = """
import sys, torch, gpudoctor
from transformers import Trainer, TrainingArguments
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels=None):
        if sys.argv[1] == "fail":
            raise ValueError("bad sample 17")
        return {"loss": self.layer(x).mean()}
data = [{"x": torch.ones(4), "labels": torch.zeros(1)}] * 8
options = TrainingArguments(sys.argv[2], max_steps=2, use_cpu=True, report_to=[], save_strategy="no")
Trainer(Model(), options, train_dataset=data, callbacks=[gpudoctor.callback("transformers")]).train()
"""
LIGHTNING = """
import sys, torch, gpudoctor, lightning.pytorch as L
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        if sys.argv[1] == "fail":
            raise ValueError("bad sample 17")
        return self.layer(batch).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
data = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=4)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = L.Trainer(max_steps=2, accelerator="cpu", callbacks=[gpudoctor.callback("lightning")], **quiet)
trainer.fit(Model(), data)
"""
ACCELERATE = """
import sys, torch, gpudoctor
from accelerate import Accelerator
with gpudoctor.watch():
    accelerator = Accelerator(cpu=True)
    model, data = accelerator.prepare(torch.nn.Linear(4, 1), torch.utils.data.DataLoader(torch.ones(8, 4)))
    for batch in data:
        if sys.argv[1] == "fail":
            raise ValueError("bad sample 17")
        accelerator.backward(model(batch).mean())
"""


def run(code: str, *words: str, python: str = sys.executable, **environ: str) -> End:
    """Run it as a script of the user's."""
    found = os.pathsep.join([str(needs.REPOSITORY), sysconfig.get_path("purelib")])
    env = {**os.environ, "PYTHONPATH": found, "GPUDOCTOR_HISTORY": "off", **environ}
    ran = subprocess.run([python, "-c", code, *words], env=env, capture_output=True, timeout=PATIENCE, check=False)
    return End(ran.returncode, ran.stdout, ran.stderr)


def test_a_sound_training() -> None:
    end = run("import gpudoctor\nwith gpudoctor.watch() as seen: print('trained')\nprint(seen.diagnosis.verdict)")
    assert (end.code, end.out) == (0, b"trained\nsound\n")
    assert end.err.startswith(b"gpudoctor: exit 0 after ")


def test_an_exception_that_is_known() -> None:
    end = run(f"{DEFINED}import gpudoctor\nwith gpudoctor.watch():\n  fail()")
    assert end.code == 1
    assert b"[workload.oom]" in end.err
    assert end.err.rstrip().endswith(OOM.encode()), "the traceback is the last word, as without us"


def test_a_training_that_is_not_ended_by_its_callback() -> None:
    """Where a framework calls nothing on an exception, the interpreter's end does."""
    end = run(f"{DEFINED}import gpudoctor\ngpudoctor.watch().start()\nfail()")
    assert end.code == 1
    assert b"[workload.oom]" in end.err
    assert b"exit 1 after" in end.err


def test_other_ends() -> None:
    begin = "import sys, gpudoctor\nwith gpudoctor.watch():\n  "
    assert b"exit 3 after" in run(f"{begin}sys.exit(3)").err
    assert b"exit 0 after" in run(f"{begin}sys.exit()").err
    plain = run(f"{begin}raise ValueError('bad sample 17')").err
    assert b"nothing found that explains it" in plain


def test_an_end_whose_exit_code_python_hides() -> None:
    """At the interpreter's end nothing says whether ``sys.exit(3)`` was called: 0 would be a guess."""
    begin = "import sys, gpudoctor\nwatching = gpudoctor.watch()\nwatching.start()\n"
    for code, end in ((3, "sys.exit(3)"), (0, "")):
        ran = run(f"{begin}{end}")
        assert ran.code == code
        assert ran.err.startswith(b"gpudoctor: exit code not known after "), ran.err
        assert b"nothing found" in ran.err
        assert b"explains it" not in ran.err, "whether it failed is not known either"
    assert run(f"{begin}watching.stop()\nsys.exit(3)").err.startswith(b"gpudoctor: exit 0 after ")


def test_one_account_of_all_ranks(tmp_path: object) -> None:
    environ = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "TMPDIR": str(tmp_path)}
    code = "import gpudoctor\nwith gpudoctor.watch(): pass"
    ends = [run(code, **environ, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(2)]
    assert ends[0].err.startswith(b"gpudoctor: rank 0 of 2 on ")
    assert ends[1].err == b""


def test_a_framework_that_has_no_callbacks() -> None:
    assert (
        b"UsageError: accelerate: transformers or lightning"
        in run("import gpudoctor\ngpudoctor.callback('accelerate')").err
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "code"), [("transformers", TRANSFORMERS), ("lightning", LIGHTNING), ("accelerate", ACCELERATE)]
)
def test_a_real_framework(name: str, code: str, tmp_path: object) -> None:
    python = needs.framework_python(name)
    end = run(code, "go", str(tmp_path), python=python)
    assert end.code == 0, end.err
    assert end.err.count(b"gpudoctor: exit 0 after ") == 1, end.err
    end = run(code, "fail", str(tmp_path), python=python)
    assert end.code == 1
    assert end.err.count(b"gpudoctor: exit 1 after ") == 1, end.err
