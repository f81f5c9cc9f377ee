# SPDX-License-Identifier: Apache-2.0
"""The launcher under Horovod's module names; at home it is rueda.run."""

from rueda.run import run

__all__ = ['run']
