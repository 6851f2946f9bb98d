"""`fourstroke doctor`, the real command on the real machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from fourstroke.common.devices import VARIABLES


def doctor(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command, run to its end, in an environment that hides no device but as it is said here."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES} | variables
    command = [sys.executable, "-P", "-m", "fourstroke", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400, check=False)


def test_the_machine_that_runs_the_tests():
    """Its CPU computes right, every flaw has its advice, and the status is 1 only if something is red."""
    done = doctor("--json")
    report = json.loads(done.stdout)
    findings = {finding["subject"]: finding for finding in report["findings"]}
    tests = [name for name in findings if name.endswith("on the CPU")]
    assert len(tests) >= 4
    assert {findings[name]["level"] for name in tests} == {"green"}
    assert {"fourstroke", "memory", "torch", "Triton"} <= findings.keys()
    assert all((finding["level"] == "green") != bool(finding["advice"]) for finding in findings.values())
    red = [name for name, finding in findings.items() if finding["level"] == "red"]
    assert done.returncode == bool(red), done.stderr
    assert (report["level"] == "red") == bool(red)
    assert "Traceback" not in done.stderr


def test_a_red_line():
    """Variables that contradict each other are shown to people in words, with status 1."""
    done = doctor(HIP_VISIBLE_DEVICES="0", ROCR_VISIBLE_DEVICES="1")
    assert done.returncode == 1
    assert "keep HIP_VISIBLE_DEVICES and unset ROCR_VISIBLE_DEVICES" in done.stdout
    assert done.stderr.startswith("fourstroke: error: to be mended: visibility")
    assert len(done.stderr.splitlines()) == 1


def test_a_time_limit_that_is_too_short():
    """What could not be tested in time is red, and the rest is shown all the same."""
    done = doctor("--timeout=0.01")
    assert done.returncode == 1
    assert "came to no end" in done.stdout
    assert "model cache" in done.stdout
