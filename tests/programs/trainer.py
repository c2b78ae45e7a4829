"""Stand-in for an external trainer: takes flags, trains nothing, prints log lines like TorchTitan, and fails as requested.
A step takes a few milliseconds, fewer with a larger micro-batch and with less tensor parallelism; memory grows with the
micro-batch.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

RED, CYAN, PLAIN = "\033[31m", "\033[36m", "\033[39m"


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("tp", "micro-batch", "seq-len", "global-batch", "world-size", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--limit-gib", type=float, default=1000.0)
    parser.add_argument("--fault", default="")
    parser.add_argument("--faulty-tp", type=int, default=0)
    parser.add_argument("--json", default="")
    parser.add_argument("--start-seconds", type=float, default=0.0)
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    fault = options.fault if options.faulty_tp in (0, options.tp) else ""
    print("Starting", " ".join(sys.argv[1:]))
    memory_gib = options.micro_batch * (1.0 if options.recompute else 2.0) / options.tp
    if memory_gib > options.limit_gib:
        print(f"[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {memory_gib} GiB.")
        print("\n".join(f"E1122 a line of the launcher {number}" for number in range(200)), flush=True)
        return 1
    time.sleep(options.start_seconds)
    seconds = 0.004 * (1 + 1 / options.micro_batch) * (1 + 0.25 * (options.tp > 1)) * (1.3 if options.recompute else 1.0)
    times = []
    for step in range(1, options.steps + 1):
        misbehave(fault, step)
        started = time.perf_counter()
        time.sleep(seconds * (5 if step == 1 else 1))
        times.append(time.perf_counter() - started)
        if not options.quiet:
            rate = round(options.seq_len * options.global_batch / times[-1] / options.world_size)
            loss = float("nan") if fault == "nan" and step == 5 else 8.0 / step
            print(
                f"[rank0]:2026-11-22 - root - INFO - {RED}step: {step:2}  {RED}loss: {loss:8.5f}  {RED}grad_norm: {1.5:7.4f}  "
                f"{RED}memory: {memory_gib:5.2f}GiB(12.30%)  {CYAN}tps: {rate:,}  {CYAN}tflops: 1.23  {CYAN}mfu: 4.56%{PLAIN}",
                flush=True,
            )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"time": {"steps": times}, "memory": {"peak_gib": memory_gib}, "loss": [8.0 / n for n in range(1, 9)]}, file)
    return 0


def misbehave(fault: str, step: int) -> None:
    if step != 3:
        return
    if fault == "crash":
        raise RuntimeError("a layer cannot be split so")
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "swallowed":
        print("RuntimeError: CUDA out of memory, says a rank, and its launcher ends well")
        sys.exit(0)
    if fault == "exit-42":
        sys.exit(42)
    if fault == "exit-77":
        sys.exit(77)
    if fault == "child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    if fault == "wait":
        while not os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "go")):
            time.sleep(0.02)
    if fault == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)


if __name__ == "__main__":
    sys.exit(main())
