"""The forms of matrices follow from their types, and what is counted is what is loaded."""

from __future__ import annotations

import pytest
from gguf import GGMLQuantizationType as Type

from fourstroke.procs.executor.native.forms import Form, head_kept_as, kept_as, kept_together, weight_bytes, widened
from fourstroke.procs.executor.native.library import Library

from .random_model import EMBEDDING, HEAD, RandomCheckpoint, model_config, native

CONFIG = model_config(2, 1)
FORMS: tuple[Form, ...] = (None, Type.Q8_0, Type.Q4_1, Type.Q4_0)


def mixed(name: str) -> Form:
    """Attention's values in 8 bits beside 4, a gate beside an up that is stored in bfloat16."""
    return {"v": Type.Q8_0, "q": Type.Q4_0, "up": None}.get(name.split(".")[-2].removesuffix("_proj"), Type.Q4_1)


@pytest.mark.parametrize(
    "quantization, kept, heads",
    [
        ("none", (None, None, None, None), (None, None, None, None)),
        ("auto", FORMS, FORMS),
        ("int8", (Type.Q8_0, *FORMS[1:]), (Type.Q8_0, *FORMS[1:])),
        ("int4", (Type.Q4_1, Type.Q4_1, *FORMS[2:]), (Type.Q8_0, *FORMS[1:])),
    ],
)
def test_matrices_by_themselves(quantization: str, kept: tuple[Form, ...], heads: tuple[Form, ...]) -> None:
    """4 bits are never changed but to bfloat16; the head is not brought below 8."""
    assert tuple(kept_as(form, quantization) for form in FORMS) == kept
    assert tuple(head_kept_as(form, quantization) for form in FORMS) == heads


def test_matrices_together() -> None:
    """Any two, in either order, and a third of either kind, have the form of the wider one; Q4_0 has no minima."""
    wider = {form: place for place, form in enumerate(FORMS)}
    for one in FORMS:
        for other in FORMS:
            expected = min(one, other, key=wider.__getitem__)
            for forms in ((one, other), (other, one), (one, other, one), (one, one, other)):
                assert kept_together(forms) == expected


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("quantization", ["none", "auto", "int8", "int4"])
@pytest.mark.parametrize("kinds", [lambda _name: None, mixed, lambda _name: Type.Q8_0], ids=["bf16", "mixed", "Q8_0"])
def test_what_is_counted_is_loaded(kernels: Library, tied: bool, quantization: str, kinds: object) -> None:
    """All tiles, the embedding in bfloat16 and the norms in float32, to the byte."""
    checkpoint = RandomCheckpoint(model_config(2, 1, tied_embeddings=tied), kinds)  # type: ignore[arg-type]
    loaded = native(kernels, checkpoint, quantization=quantization)._memory[0]
    of_layers = [part for layer in loaded._layers for part in (layer._query_key_value, layer._output)]
    of_layers += [part for layer in loaded._layers for part in (layer._gate_up, layer._down)]
    tiles = sum(part.memory[0].nbytes for part in (*of_layers, loaded.head))
    norms = [loaded.final_norm, *(n for layer in loaded._layers for n in (layer._attention_norm, layer._mlp_norm))]
    expected = tiles + loaded.embedding.nbytes + sum(norm.nbytes for norm in norms)
    assert weight_bytes(kernels, checkpoint, quantization) == expected


def test_fewer_bits_take_less(kernels: Library) -> None:
    """4 bits less than 8, and these less than 16."""
    none, eight, four = (weight_bytes(kernels, RandomCheckpoint(CONFIG), kind) for kind in ("none", "int8", "int4"))
    assert four < eight < none


def test_what_is_widened() -> None:
    """Products of which a part is stored in blocks and another is not, unless everything is wanted in one form."""
    checkpoint = RandomCheckpoint(CONFIG, mixed)
    assert widened(checkpoint, "auto") == CONFIG.layers
    assert [widened(checkpoint, quantization) for quantization in ("none", "int8", "int4")] == [0, 0, 0]
    assert widened(RandomCheckpoint(CONFIG), "auto") == 0
    ends = RandomCheckpoint(CONFIG, lambda name: Type.Q4_1 if name in (EMBEDDING, HEAD) else None)
    assert widened(ends, "auto") == 0
