"""The program that tests torch may die of anything or never end: the launcher tells how, and what was done then."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from fourstroke.common.finding import Doing, Level, green, yellow
from fourstroke.launch.doctor.program import SUBJECT, End, examine, findings_of, run_program

TORCH, TRITON = green("torch", "2.13"), yellow("Triton", "none", "install it")
LINES = (TORCH.line, Doing("testing GEMM").line, TRITON.line)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file for a program, which can be run as the module `program`."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "program.py"


def test_a_good_end_adds_nothing() -> None:
    """The program's findings in their order, and nothing else."""
    assert findings_of(End(0, 9, LINES, "a warning\n")) == [TORCH, TRITON]


def test_other_lines_do_not_count() -> None:
    """What a library prints between the findings, or the half of a line before a crash, is passed over."""
    assert findings_of(End(0, 9, ("hello", "{}", *LINES, '{"subject": "tor'), "")) == [TORCH, TRITON]


@pytest.mark.parametrize(
    "status, found, advice",
    [
        (-signal.SIGILL, "was killed by SIGILL while testing GEMM: last words", "install another torch"),
        (-signal.SIGSEGV, "was killed by SIGSEGV while testing GEMM: last words", "dmesg"),
        (-signal.SIGABRT, "was killed by SIGABRT while testing GEMM: last words", "dmesg"),
        (-signal.SIGKILL, "was killed by SIGKILL (did the machine run out of memory?) while testing GEMM", "--memory"),
        (1, "failed (exit status 1) while testing GEMM: last words", "report it"),
        (None, "came to no end within 9 s while testing GEMM", "dmesg"),
    ],
)
def test_a_bad_end_is_red(status: int | None, found: str, advice: str) -> None:
    """It comes after what was found before, says what was done at the time, and what to do now."""
    *before, bad = findings_of(End(status, 9, LINES, "first words\nlast words\n"))
    assert before == [TORCH, TRITON]
    assert (bad.subject, bad.level) == (SUBJECT, Level.RED)
    assert found in bad.found
    assert advice in bad.advice


def test_a_torch_that_cannot_be_imported() -> None:
    """Nothing was said before the end: it came with the import."""
    (bad,) = findings_of(End(1, 9, (), "Traceback ...\nImportError: libamdhip64.so: no such file\n"))
    assert bad.level == Level.RED
    assert "while importing torch: ImportError: libamdhip64.so: no such file" in bad.found
    assert "install torch again" in bad.advice


def test_a_program_of_its_own(module: Path) -> None:
    """It gets its order as JSON, and what it prints is read to its end."""
    module.write_text(
        "import json, sys\n"
        "order = json.loads(sys.argv[1])\n"
        "print(json.dumps({'subject': 'order', 'level': 'green', 'found': order['a'], 'advice': ''}))\n"
    )
    assert examine({"a": "it"}, 60, "program") == [green("order", "it")]


def test_a_program_that_dies(module: Path) -> None:
    """A signal is told by its name, with the words before it."""
    module.write_text("import os, sys\nprint('bad\\ninstruction', file=sys.stderr)\nos.kill(os.getpid(), 4)\n")
    (bad,) = examine({}, 60, "program")
    assert "was killed by SIGILL while importing torch: instruction" in bad.found


def test_a_program_that_hangs(module: Path) -> None:
    """After its time it is killed, with what it has started; it may ignore signals that ask."""
    module.write_text(
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.run([sys.executable, '-c', 'import signal; signal.pause()'])\n"
    )
    end = run_program({}, 0.5, "program")
    assert end.status is None
    assert [finding.level for finding in findings_of(end)] == [Level.RED]
