"""What every process knows: configuration, small value types, errors, logging. Standard library only."""
