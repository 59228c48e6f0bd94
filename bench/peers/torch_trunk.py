#!/usr/bin/env python3
"""Times PyTorch on the work of `tlob bench trunk` and `tlob bench bias`, for ratios side by side.

torch.nn.MultiheadAttention(256, 8) with biases on 64 samples of 64 tokens, as it is in training and in evaluation
(where its forward pass may take a path of its own); scaled dot product attention alone, on the heads of those samples
and on 4096 tokens with 8 heads of 64; and four linear layers with biases on 4096 tokens. Forward, and forward and
backward (gradients of parameters and inputs): eager, torch.compile, and a CUDA graph of eager, as torch_times.py tells.
N is the number of tokens.

    python3 bench/peers/torch_trunk.py [--compute tf32|fp32] [--repeat COUNT] [--seed NUMBER] \\
        [--cases NAME,...] [--json]
"""
import sys

import torch_times

DIM, HEADS, SEQ, SAMPLES = 256, 8, 64, 64


def data(*shape):
    return torch.randn(*shape, device="cuda", requires_grad=True)


def attention(name, training):
    module = torch.nn.MultiheadAttention(DIM, HEADS, bias=True, batch_first=True, device="cuda").train(training)
    x = data(SAMPLES, SEQ, DIM)

    def function(x):
        return module(x, x, x, need_weights=False)[0]

    return torch_times.Case(name, SAMPLES * SEQ, function, [x], [x, *module.parameters()],
                            torch.randn(SAMPLES, SEQ, DIM, device="cuda"))


def scaled_dot_product(name, samples, heads, seq, head_dim):
    inputs = [data(samples, heads, seq, head_dim) for _ in range(3)]

    def function(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return torch_times.Case(name, samples * seq, function, inputs, inputs,
                            torch.randn(samples, heads, seq, head_dim, device="cuda"), calls=5 if seq > 1024 else 20)


def linears(name):
    layers = [torch.nn.Linear(DIM, DIM, device="cuda") for _ in range(4)]
    x = data(SAMPLES * SEQ, DIM)

    def function(x):
        return [layer(x) for layer in layers]

    parameters = [p for layer in layers for p in layer.parameters()]
    return torch_times.Case(name, SAMPLES * SEQ, function, [x], [x, *parameters],
                            [torch.randn(SAMPLES * SEQ, DIM, device="cuda") for _ in layers])


def cases():
    yield attention("mha_training", True)
    yield attention("mha_eval", False)
    yield scaled_dot_product("sdpa_seq64", SAMPLES, HEADS, SEQ, DIM // HEADS)
    yield scaled_dot_product("sdpa_seq4096", 1, HEADS, 4096, 64)
    yield linears("linears")


options = torch_times.parse_arguments(__doc__)
torch = torch_times.import_torch()
sys.exit(torch_times.run(torch, options, cases))
