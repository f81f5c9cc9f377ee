# SPDX-License-Identifier: Apache-2.0
"""The launcher under Horovod's module names; at home it is rueda.run."""
