# SPDX-License-Identifier: Apache-2.0
"""Process sets, under the module name that scripts import."""

from rueda.process_sets import (ProcessSet, add_process_set, global_process_set, process_set_by_id,
                                remove_process_set)

__all__ = ['ProcessSet', 'add_process_set', 'global_process_set', 'process_set_by_id',
           'remove_process_set']
