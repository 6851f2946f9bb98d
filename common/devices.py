"""Which GPUs a server may use, as its environment says. Pure: the launcher reads the environment and passes it on.

Three variables choose devices, at two places: ROCR_VISIBLE_DEVICES filters in ROCm's lower runtime, and
HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES with the same effect, among what is left. With two of them it is easy to
see another device than was meant, or none: so two that differ are refused. Source: "GPU isolation techniques" in
ROCm's documentation.
"""

from __future__ import annotations

from collections.abc import Mapping

from .errors import ConfigError

LOWER = "ROCR_VISIBLE_DEVICES"
VARIABLES = ("HIP_VISIBLE_DEVICES", LOWER, "CUDA_VISIBLE_DEVICES")

_NONE = ("", "-1", "NoDevFiles")
"""Values that hide all devices; the last is Slurm's."""


def visible_devices(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """The devices that the environment allows, by index or UUID; None if it does not say.

    Raises ConfigError, which names both variables, if two of them are set that do not say the same.
    """
    said = {name: _devices(environment[name]) for name in VARIABLES if name in environment}
    if not said:
        return None
    (first, devices), *others = said.items()
    for name, other in others:
        if other != devices:
            raise ConfigError(
                f"{first}={environment[first]} and {name}={environment[name]} choose different devices: set one of them"
            )
    if len(said) > 1 and LOWER in said and devices != tuple(map(str, range(len(devices)))):
        name = next(name for name in said if name != LOWER)
        raise ConfigError(
            f"{name}={environment[name]} counts among the devices that {LOWER} has left, so that "
            f"together they choose others than each of them: set one of them"
        )
    return devices


def _devices(value: str) -> tuple[str, ...]:
    return () if value.strip() in _NONE else tuple(part.strip() for part in value.split(","))
