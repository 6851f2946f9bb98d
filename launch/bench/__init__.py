"""`fourstroke bench`: starts programs that measure, and says how their figures compare with their targets."""
