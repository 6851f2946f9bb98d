"""Log-likelihoods by transformers, with the weights of the default model: what lm-eval must find through the server.

Reads a JSON list of [context ids, continuation ids], writes one of [log-likelihood, whether greedy decoding says it].
Run by the tests, in the environment that has fourstroke: python -m tests.clients.score < PAIRS
"""

import json
import sys

import torch
from transformers import LlamaForCausalLM

from fourstroke.launch.model_source import default_model

from ..unit.procs.executor.transformers_model import transformers_model


def score(model: LlamaForCausalLM, context: list[int], continuation: list[int]) -> tuple[float, bool]:
    ids = torch.tensor([context + continuation])
    logprobs = model(ids).logits[0, len(context) - 1 : -1].log_softmax(-1)
    wanted = ids[0, len(context) :, None]
    return logprobs.gather(-1, wanted).sum().item(), bool((logprobs.argmax(-1, keepdim=True) == wanted).all())


def main() -> None:
    model = transformers_model(default_model())
    with torch.inference_mode():
        json.dump([score(model, *pair) for pair in json.load(sys.stdin)], sys.stdout)


main()
