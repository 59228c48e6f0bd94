#!/usr/bin/env python3
"""Times PyTorch on the work of `tlob bench step`, for ratios side by side.

The training step of the TLOB block 32 -> 16 with 4 tokens of 4 (FEATURE axis), its linear head over three classes,
softmax cross-entropy and Adam (fused): eager; with forward and loss under torch.compile; and the whole step as one CUDA
graph (Adam capturable), of eager and of what is compiled. libtlob's step also counts hits, which this does not.

    python3 bench/peers/torch_step.py [--compute tf32|fp32] [--repeat COUNT] [--seed NUMBER] [--samples COUNT] \\
        [--tlob FILE] [--json]

FILE is what `tlob bench step --json` wrote, with the same number of samples: each time is then held against libtlob's
graph and against its calls.
"""
import json
import sys

import torch_times

CLASSES, D_IN, D_OUT, HEAD, CALLS = 3, 32, 16, 4, 20
MODES = ("eager", "compile", "graph", "compile_graph")


def read_tlob(path, samples):
    """Medians of libtlob's graph and of its calls."""
    try:
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["results"]
        row = next(row for row in rows if row["what"] == "step" and row["n"] == samples)
        return row["graph"]["median_us"], row["calls"]["median_us"]
    except (OSError, ValueError, LookupError, TypeError, StopIteration) as error:
        sys.exit(f"{sys.argv[0]}: {path}: not what `tlob bench step --json' writes of {samples} samples: {error!r}")


def make_step(torch, mode, samples):
    """A function that makes one training step, all anew: weights, optimizer and batch."""
    x = torch.randn(samples, D_IN, device="cuda")
    labels = torch.randint(CLASSES, (samples,), device="cuda")
    shapes = [(D_OUT, D_IN)] * 3 + [(D_OUT, D_OUT), (CLASSES, D_OUT)]
    weights = [torch.nn.init.xavier_uniform_(torch.empty(shape, device="cuda")).requires_grad_() for shape in shapes]
    weights.append(torch.zeros(CLASSES, device="cuda", requires_grad=True))
    optimizer = torch.optim.Adam(weights, fused=True, capturable=mode.endswith("graph"))

    def loss(w_q, w_k, w_v, w_o, w_head, b_head):
        q, k, v = ((x @ w.t()).view(samples, D_OUT // HEAD, HEAD) for w in (w_q, w_k, w_v))
        p = torch.softmax(q @ k.transpose(1, 2) / HEAD**0.5, dim=-1)
        y = (p @ v).reshape(samples, D_OUT) @ w_o.t()
        return torch.nn.functional.cross_entropy(torch.addmm(b_head, y, w_head.t()), labels)

    if mode.startswith("compile"):
        torch.compiler.reset()
        loss = torch.compile(loss)

    def step():
        optimizer.zero_grad(set_to_none=True)
        value = loss(*weights)
        value.backward()
        optimizer.step()
        return value

    return step


def time_mode(torch, mode, options):
    row = {"what": "torch_step", "n": options.samples, "mode": mode}
    try:
        step = make_step(torch, mode, options.samples)
        call = torch_times.as_graph(torch, step) if mode.endswith("graph") else step
        row["step"] = torch_times.measure(torch, call, CALLS, options.repeat)
        if not torch.isfinite(step()):
            raise ArithmeticError("the loss is not finite")
    except Exception as error:  # whatever a mode does, the others are still timed
        lines = str(error).splitlines()
        row["step"] = f"{type(error).__name__}: {lines[0] if lines else ''}"
    return row


def report(row):
    timed = isinstance(row["step"], tuple)
    ratios = "  %6.2f %6.2f" % (row["over_graph"], row["over_calls"]) if "over_graph" in row else ""
    print("%-12s %7d  %-13s  %s%s" % (row["what"], row["n"], row["mode"],
                                      "%10.2f [%.2f %.2f]" % row["step"] if timed else row["step"], ratios), flush=True)


def add_arguments(parser):
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--tlob", metavar="FILE", help="what `tlob bench step --json' wrote")


def main():
    options = torch_times.parse_arguments(__doc__, add_arguments, cases=False)
    if options.samples < 1:
        sys.exit(f"{sys.argv[0]}: --samples: {options.samples} is not at least 1")
    tlob = read_tlob(options.tlob, options.samples) if options.tlob else None
    torch = torch_times.import_torch()
    versions = torch_times.begin(torch, options)
    if not options.json:
        print("%-12s %7s  %-13s  training step: median [quartiles] in us%s" % (
            "what", "N", "mode", "  ratio to libtlob's graph, and to its calls" if tlob else ""))
    rows = []
    for mode in MODES:
        row = time_mode(torch, mode, options)
        if tlob and isinstance(row["step"], tuple):
            row["over_graph"], row["over_calls"] = (row["step"][0] / us for us in tlob)
        rows.append(row)
        if not options.json:
            report(row)
    if options.json:
        print(json.dumps({**versions, "results": rows}, indent=1))
    return 1 if any(isinstance(row["step"], str) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
