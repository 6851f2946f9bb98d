"""`fourstroke doctor`: what this machine has, and what to do where that will not serve."""
