"""``python -m perseus_ds``."""

import sys

from perseus_ds.cli import main

if __name__ == "__main__":
    sys.exit(main())
