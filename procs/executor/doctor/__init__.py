"""The executor: what torch has on this machine and whether it computes right, for `fourstroke doctor`."""
