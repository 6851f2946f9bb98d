"""A child's output and end, as the operator reads them."""

import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.launch.child import Output, end_in_words


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended unasked (exit status 0)"),
        (3, "failed (exit status 3)"),
        (-signal.SIGSEGV, "was killed by SIGSEGV"),
        (-signal.SIGKILL, "was killed by SIGKILL (did the machine run out of memory?)"),
        (-40, "was killed by signal 40"),
    ],
)
def test_end_in_words(status: int, words: str) -> None:
    """Every exit status reads as a sentence, signals by their names."""
    assert end_in_words(status) == words


@given(st.lists(st.binary(max_size=40), max_size=12))
def test_output_passes_whole_lines_on(chunks: list[bytes]) -> None:
    """However output is cut into pieces, its lines arrive whole and in order, an unfinished last one too."""
    read, write = os.pipe()
    relayed_read, relayed_write = os.pipe()
    stderr = os.dup(2)
    os.dup2(relayed_write, 2)
    try:
        output = Output(read)
        for chunk in chunks:
            os.write(write, chunk)
            output.pump()
        os.close(write)
        output.finish()
    finally:
        os.dup2(stderr, 2)
        for fd in (stderr, relayed_write, read):
            os.close(fd)
    with os.fdopen(relayed_read, "rb") as relayed:
        data, text = relayed.read(), b"".join(chunks)
    assert data == (text if text.endswith(b"\n") or not text else text + b"\n")
    assert list(output.tail) == [line.decode(errors="replace") for line in data.split(b"\n")[:-1]][-20:]


def test_pump_tells_the_end() -> None:
    """A pipe that is open and empty goes on, a closed one has ended."""
    read, write = os.pipe()
    output = Output(read)
    assert output.pump()
    os.close(write)
    assert not output.pump()
    os.close(read)
