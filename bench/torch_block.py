#!/usr/bin/env python3
"""Times PyTorch on the work of `tlob bench block`, for ratios side by side.

The TLOB block 32 -> 16 with 4 tokens of 4 (FEATURE axis), forward, and forward and backward (gradients of the weights),
on 256 and 65536 samples: eager, torch.compile, and a CUDA graph of eager. Microseconds a call: the median and, in
brackets, the quartiles, of events around several calls, as `tlob bench` takes them.

    python3 bench/torch_block.py [--compute tf32|fp32] [--repeat COUNT] [--seed NUMBER] [--json]
"""
import argparse
import json
import sys

D_IN, D_OUT, HEAD = 32, 16, 4


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compute", choices=["tf32", "fp32"], default="tf32")
    parser.add_argument("--repeat", type=int, default=101)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def block(x, w_q, w_k, w_v, w_o):
    n = x.shape[0]
    q, k, v = ((x @ w.t()).view(n, D_OUT // HEAD, HEAD) for w in (w_q, w_k, w_v))
    p = torch.softmax(q @ k.transpose(1, 2) / HEAD**0.5, dim=-1)
    return (p @ v).reshape(n, D_OUT) @ w_o.t()


def make_works(n):
    """The two calls to time, on the same data, and what they are compiled from."""
    x = torch.randn(n, D_IN, device="cuda")
    dy = torch.randn(n, D_OUT, device="cuda")
    weights = [torch.randn(D_OUT, D_IN if i < 3 else D_OUT, device="cuda", requires_grad=True) for i in range(4)]

    def works_of(function):
        def forward():
            with torch.no_grad():
                return function(x, *weights)

        def both():
            return torch.autograd.grad(function(x, *weights), weights, dy)

        return {"forward": forward, "forward_and_backward": both}

    return works_of


def as_graph(call):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def measure(call, calls, repeat):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    samples = []
    for r in range(-5, repeat):
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        if r >= 0:
            samples.append(1e3 * begin.elapsed_time(end) / calls)
    samples.sort()
    return samples[repeat // 2], samples[repeat // 4], samples[repeat - 1 - repeat // 4]


def report(row, options):
    if not options.json:
        cells = "".join("  %10.2f [%.2f %.2f]" % row[name] for name in ("forward", "forward_and_backward"))
        print("%-12s %7d  %-7s%s" % ("torch_block", row["n"], row["mode"], cells), flush=True)


def main():
    options = parse_arguments()
    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = options.compute == "tf32"
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "device": torch.cuda.get_device_name(),
                "compute": options.compute, "seed": options.seed}
    if not options.json:
        print(", ".join("%s %s" % item for item in versions.items()))
        print("%-12s %7s  %-7s  forward, then forward and backward: median [quartiles] in us" % ("what", "N", "mode"))
    rows = []
    for n in (256, 65536):
        works_of = make_works(n)
        eager = works_of(block)
        modes = {"eager": eager, "compile": works_of(torch.compile(block)),
                 "graph": {name: as_graph(call) for name, call in eager.items()}}
        for mode, works in modes.items():
            row = {"n": n, "mode": mode}
            row.update({name: measure(call, 20 if n <= 4096 else 5, options.repeat) for name, call in works.items()})
            report(row, options)
            rows.append(row)
    if options.json:
        print(json.dumps({**versions, "results": rows}, indent=1))


try:
    import torch
except ImportError:
    sys.exit("torch_block.py: PyTorch is not installed here")
if not torch.cuda.is_available():
    sys.exit("torch_block.py: PyTorch finds no GPU here")
main()
