# SPDX-License-Identifier: Apache-2.0
"""`python -m rueda.run` is the same as `ruedarun`."""

import sys

from rueda.run.launcher import main

sys.exit(main())
