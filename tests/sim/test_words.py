"""The words of the error codes: those of NVIDIA's own libraries, in the program and in the simulated libraries."""

from __future__ import annotations

from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.target import error_words
from tests import needs
from tests.sim import clients, words


def test_the_table_is_what_the_real_libraries_say() -> None:
    needs.nvidia_driver()
    done = clients.run(["-m", "tests.sim.words"], {"PYTHONPATH": str(needs.REPOSITORY)})
    assert done.returncode == 0, done.stderr
    assert words.undated(done.stdout) == words.undated(words.TABLE.read_text("utf-8")), (
        "write it anew: python -m tests.sim.words --write"
    )


def test_the_programs_table_of_codes_lacks_none() -> None:
    withdrawn = 202  # CUDA_ERROR_CONTEXT_ALREADY_CURRENT, which the runtime no longer has
    rows = table("codes")
    assert set(error_words.NVML) <= {row["code"] for row in rows["nvml"]}
    assert set(error_words.CUDA) - {withdrawn} <= {row["code"] for row in rows["cuda"]}
