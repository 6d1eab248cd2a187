"""``python -m leasework`` is the command ``leasework``."""

from leasework.cli import main

if __name__ == "__main__":
    main()
