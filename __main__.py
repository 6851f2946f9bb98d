"""`python -m fourstroke` is the `fourstroke` command."""

from .launch.cli import main

if __name__ == "__main__":
    main()
