# SPDX-License-Identifier: Apache-2.0
"""What becomes of a handle whose operations fail or are interrupted. The session is a fake."""

import pytest

from rueda import exceptions
from rueda._handles import HandleTable, Pending


class FakeSession:
    """Each wait for a native handle ends with the next of its outcomes: None or an exception."""

    def __init__(self, outcomes):
        self.outcomes = outcomes
        self.waits = []

    def wait(self, native):
        self.waits.append(native)
        outcome = self.outcomes[native].pop(0)
        if outcome is not None:
            raise outcome


def table_of(*outcomes):
    session = FakeSession(outcomes)
    table, abandoned = HandleTable(session), []
    handle = table.add(Pending(range(len(outcomes)), 'tensors', 'result', None, abandoned.extend))
    return session, table, handle, abandoned


@pytest.mark.parametrize('failure', [ValueError('a fault'), exceptions.MismatchError('ranks')])
def test_all_of_a_group_are_waited_for_and_the_first_failure_is_raised(failure):
    # A ValueError left the handle and its tensors for ever, and the rest was never waited for.
    session, table, handle, abandoned = table_of([None], [failure], [ValueError('later')], [None])
    with pytest.raises(type(failure)) as caught:
        table.synchronize(handle)
    assert caught.value is failure
    assert session.waits == abandoned == [0, 1, 2, 3]
    assert table.synchronize(handle) is None


@pytest.mark.parametrize('interrupt', [KeyboardInterrupt(), KeyError('of a signal handler')])
def test_an_interrupt_leaves_the_handle(interrupt):
    session, table, handle, abandoned = table_of([None], [interrupt, None], [None])
    with pytest.raises(type(interrupt)):
        table.synchronize(handle)
    assert table.synchronize(handle) == 'result'
    assert session.waits == [0, 1, 1, 2] and not abandoned
