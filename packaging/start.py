"""What the packaged executable starts: the same entry as the ``kvscope`` command."""

import sys

from app.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
