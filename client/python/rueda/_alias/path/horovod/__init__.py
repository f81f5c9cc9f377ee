# SPDX-License-Identifier: Apache-2.0
"""What `import horovod` finds where rueda stands in for it; see rueda/_alias/__init__.py.

The import ends with rueda itself in sys.modules, and nobody sees this module.
"""

from rueda._alias import finder

finder.stand_in()
