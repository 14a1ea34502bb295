"""``python -m burtorch`` is the command ``burtorch``."""

import sys


def main() -> int:
    """Runs the command; an interrupt while its modules are imported ends it as a later one does."""
    try:
        from burtorch.cli import main

        return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
