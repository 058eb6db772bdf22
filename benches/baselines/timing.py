"""Times work as `atlas bench` does: events around each run, the L2 flushed before it, the median of many."""

import datetime
import math
import platform
import signal
import statistics
import subprocess
import threading
import time

import torch

# More bytes than any L2 cache has.
FLUSH_BYTES = 256 << 20
WARM_UP = 5


class WallLimit(BaseException):
    """Raised when a baseline takes too long. No Exception, so that no library swallows it on the way."""


class limited:
    """Ends the block with WallLimit after so many seconds."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __enter__(self):
        def ring(_signal, _frame):
            raise WallLimit(f"took more than {self.seconds:.0f} s")

        self.on = threading.current_thread() is threading.main_thread()
        if self.on:
            self.before = signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, max(self.seconds, 0.01))
        return self

    def __exit__(self, *_):
        if self.on:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self.before)
        return False


_flushed = None


def _flush():
    global _flushed
    if _flushed is None:
        _flushed = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    _flushed.zero_()


def times(fn, runs, seconds=math.inf):
    """Times in milliseconds of `runs` runs, each with a cold L2; of fewer, but at least three, if they take more than `seconds`."""
    fn()
    torch.cuda.synchronize()
    begun = time.monotonic()
    fn()
    torch.cuda.synchronize()
    one = time.monotonic() - begun
    runs = max(min(runs, int(seconds / one)), 3)
    for _ in range(min(WARM_UP, runs) - 2):
        fn()
    torch.cuda.synchronize()
    events = []
    for _ in range(runs):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        # The fill keeps the GPU busy while the host queues the rest, so that the GPU never waits for short launches.
        _flush()
        start.record()
        fn()
        end.record()
        events.append((start, end))
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def median(fn, runs, seconds=math.inf):
    """The median of `times`, and of how many runs it is."""
    found = times(fn, runs, seconds)
    return statistics.median(found), len(found)


def graphed(fn):
    """`fn` captured in a CUDA graph: a callable that replays it and returns its output. Without a GPU `fn` itself."""
    if not torch.cuda.is_available():
        return fn
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            fn()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = fn()

    def replay():
        graph.replay()
        return out

    return replay


def warm(seconds=0.5):
    """Brings the clocks up."""
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    stop = datetime.datetime.now() + datetime.timedelta(seconds=seconds)
    while datetime.datetime.now() < stop:
        for _ in range(20):
            torch.mm(x, x)
        torch.cuda.synchronize()


def clocks():
    """What nvidia-smi says of the first GPU; empty where it is missing."""
    fields = [
        "name", "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm",
        "power.draw", "power.limit", "temperature.gpu", "pstate",
    ]
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader", "-i", "0"]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        return dict(zip([f.replace(".", "_") for f in fields], [v.strip() for v in out.strip().split(",")]))
    except (OSError, subprocess.SubprocessError):
        return {}


def record():
    """GPU, driver, versions and date."""
    try:
        import triton

        triton_version = triton.__version__
    except ImportError:
        triton_version = None
    gpu = torch.cuda.get_device_properties(0)
    return {
        "gpu": gpu.name,
        "sms": gpu.multi_processor_count,
        "memory_gib": round(gpu.total_memory / 2**30, 1),
        "capability": f"{gpu.major}.{gpu.minor}",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "triton": triton_version,
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "at_start": clocks(),
        "method": "CUDA events around each run, 256 MiB overwritten before it, median; the median of rounds is given",
    }
