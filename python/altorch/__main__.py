# SPDX-License-Identifier: BSD-3-Clause
"""`python -m altorch` is the console script `altorch`."""

import sys

from altorch.cli import main

sys.exit(main())
