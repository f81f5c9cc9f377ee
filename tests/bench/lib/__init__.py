# SPDX-License-Identifier: Apache-2.0
"""The benchmark's driver: installs the peers, starts gangs, alternates them, prints rows."""
