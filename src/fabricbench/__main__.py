"""`python -m fabricbench`."""

import sys

from fabricbench.cli import main

sys.exit(main())
