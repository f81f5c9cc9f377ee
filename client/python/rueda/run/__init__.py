# SPDX-License-Identifier: Apache-2.0
"""ruedarun: starts the ranks of a job on this host and looks after them.

Only what the command line needs; nothing here imports a training framework.
"""
