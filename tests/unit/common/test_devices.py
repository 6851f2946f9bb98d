"""Visible devices: one variable says which, and what two of them would do is refused in words."""

import pytest

from fourstroke.common.devices import VARIABLES, visible_devices
from fourstroke.common.errors import ConfigError

HIP, ROCR, CUDA = VARIABLES


def test_nothing_is_said() -> None:
    """Without a variable all devices may be used."""
    assert visible_devices({"PATH": "/bin"}) is None


@pytest.mark.parametrize("name", VARIABLES)
def test_one_variable(name: str) -> None:
    """Indices and UUIDs are kept in their order."""
    assert visible_devices({name: "2, 0,GPU-DEADBEEF"}) == ("2", "0", "GPU-DEADBEEF")


@pytest.mark.parametrize("value", ["", " ", "-1", "NoDevFiles"])
def test_none_are_visible(value: str) -> None:
    """An empty list hides all devices, which is another thing than no list."""
    assert visible_devices({HIP: value}) == ()


@pytest.mark.parametrize("pair", [(HIP, ROCR), (HIP, CUDA), (ROCR, CUDA)], ids=" ".join)
def test_two_that_differ(pair: tuple[str, str]) -> None:
    """Both are named with what they say."""
    with pytest.raises(ConfigError, match=f"{pair[0]}=0 and {pair[1]}=1 .* set one of them"):
        visible_devices({pair[0]: "0", pair[1]: "1"})


def test_two_that_say_the_same() -> None:
    """HIP's and CUDA's variables do the same, so the same value twice is harmless."""
    assert visible_devices({HIP: "1,2", CUDA: "1, 2"}) == ("1", "2")


@pytest.mark.parametrize("other", [HIP, CUDA])
def test_two_filters_one_after_the_other(other: str) -> None:
    """Behind ROCR's filter devices are counted anew: the same value means the same only for the first ones."""
    assert visible_devices({ROCR: "0,1", other: "0,1"}) == ("0", "1")
    with pytest.raises(ConfigError, match=f"{other}=1 counts among the devices that {ROCR} has left"):
        visible_devices({ROCR: "1", other: "1"})
