# SPDX-License-Identifier: Apache-2.0
"""What the integration tests are made of: daemons, ranks, hostile clients, the kernel's counters.

Standard library only. Everything here runs in the thread of pytest or in a forked rank.
"""
