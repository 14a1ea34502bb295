"""``python -m burtorch`` is the command ``burtorch``."""

import sys

from burtorch.cli import main

sys.exit(main())
