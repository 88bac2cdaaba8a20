"""What NVML says of the GPUs while kernels run there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

from gpudoctor.bench.devices import CPU, rows, value
from gpudoctor.kernels.ladder import Meter
from gpudoctor.model.measurement import Meanwhile
from gpudoctor.model.measurement_json import meanwhile
from gpudoctor.model.sample import GPU, Sample
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.target import Target
from gpudoctor.target.local import Local
from gpudoctor.target.recorded import Recorded


@contextmanager
def meters(target: Target, snapshot: Snapshot, device: str) -> Iterator[Meter | None]:
    """NVML, asked four times a second while kernels run; None where it has no GPU to tell of."""
    if isinstance(target, Recorded):
        yield lambda kernel, gpu: lambda: meanwhile(target.meanwhile(kernel, gpu))
        return
    if device == CPU or not rows(snapshot, "gpu") or not isinstance(target, Local):
        yield None
        return
    from gpudoctor import live

    samples = _Samples(snapshot)
    end = live.watch(samples.hear, target, interval=0.25)
    try:
        yield samples.begin
    finally:
        end()


class _Samples:
    """Samples of the kernels that run now, by the number of their device."""

    def __init__(self, snapshot: Snapshot) -> None:
        numbers = {value(row, "uuid"): value(row, "index") for row in rows(snapshot, "gpu")}
        self._nvml = {
            int(value(row, "index") or at): int(numbers.get(value(row, "uuid")) or -1)
            for at, row in enumerate(rows(snapshot, "cuda_device"))
        }
        self._lock = threading.Lock()
        self._last: dict[int, GPU] = {}
        self._seen: dict[int, list[GPU]] = {}

    def hear(self, sample: Sample) -> None:
        """A round of NVML."""
        with self._lock:
            for gpu in sample.gpus:
                self._last[gpu.index] = gpu
                if gpu.index in self._seen:
                    self._seen[gpu.index].append(gpu)

    def begin(self, _: str, device: int) -> Callable[[], Meanwhile | None]:
        """Watch it until what is returned is called."""
        index = self._nvml.get(device, -1)
        with self._lock:
            self._seen[index] = []
            before = self._last.get(index)

        def end() -> Meanwhile | None:
            with self._lock:
                return _summed(self._seen.pop(index, []), before)

        return end


def _summed(seen: Sequence[GPU], before: GPU | None = None) -> Meanwhile | None:
    """Of those samples in which the GPU worked: median clock, most power and heat, every reason, widest link.

    Of all samples: the errors of its memory, from the one `before` on.
    """
    busy = [gpu for gpu in seen if (gpu.utilization or 0) >= 50] or list(seen)
    if not busy:
        return None

    def of(name: str, pick: Callable[[list[float]], float]) -> float | None:
        values = [value for gpu in busy if (value := getattr(gpu, name)) is not None]
        return pick(values) if values else None

    def anew(name: str) -> float | None:
        counts = [count for gpu in (before, *seen) if gpu and (count := getattr(gpu, name)) is not None]
        return max(0.0, counts[-1] - counts[0]) if counts else None

    reasons = dict.fromkeys(reason for gpu in busy for reason in gpu.throttle_reasons or () if reason != "gpu_idle")
    return Meanwhile(
        of("clock_mhz", median),
        of("clock_max_mhz", max),
        of("power_w", max),
        of("power_limit_w", min),
        of("temperature_c", max),
        tuple(reasons),
        of("link_generation", max),
        of("link_width", max),
        of("utilization", max),
        anew("ecc_corrected"),
        anew("ecc_uncorrected"),
    )
