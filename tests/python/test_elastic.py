# SPDX-License-Identifier: Apache-2.0
"""The state of elastic training and the loop around the training function, without PyTorch."""

import copy
import threading

import pytest

import rueda.common.exceptions
import rueda.exceptions
from rueda.common.elastic import (HostUpdateResult, ObjectState, State, notification_manager,
                                  run_fn)
from rueda.exceptions import HorovodInternalError, HostsUpdatedInterrupt


def state_of(kind=ObjectState, received=None, **kwargs):
    """A state of rank 0 of one; `received` is what a broadcast yields instead of what is sent."""
    return kind(lambda sent: sent if received is None else received, lambda: 0, **kwargs)


@pytest.mark.row('C31', 'C32')
def test_exceptions_are_the_same_classes_under_both_names():
    # An `except` in a script must catch what the package raises.
    for name in ('HorovodInternalError', 'HostsUpdatedInterrupt', 'HorovodVersionMismatchError'):
        assert getattr(rueda.common.exceptions, name) is getattr(rueda.exceptions, name)
    assert issubclass(HostsUpdatedInterrupt, RuntimeError)
    assert not issubclass(HostsUpdatedInterrupt, HorovodInternalError)
    assert HostsUpdatedInterrupt(True).skip_sync and not HostsUpdatedInterrupt(False).skip_sync
    error = rueda.exceptions.HorovodVersionMismatchError('torch', '1.0', '2.0')
    assert isinstance(error, ImportError)
    assert (error.name, error.version, error.installed_version) == ('torch', '1.0', '2.0')
    assert 'torch 1.0' in str(error) and '2.0 is installed' in str(error)


@pytest.mark.row('E05')
def test_values_of_host_updates():
    assert [int(result) for result in (
        HostUpdateResult.no_update, HostUpdateResult.removed, HostUpdateResult.added,
        HostUpdateResult.mixed)] == [0, 1, 2, 3]
    assert HostUpdateResult.removed | HostUpdateResult.added == HostUpdateResult.mixed


@pytest.mark.row('E01')
def test_the_base_leaves_saving_to_subclasses():
    state = state_of(State)
    for method in (state.save, state.restore, state.sync, state.commit):
        with pytest.raises(NotImplementedError):
            method()
    assert state.reset() is None


@pytest.mark.row('E01')
def test_a_reset_drops_old_news_and_calls_back_in_order():
    state, calls = state_of(), []
    state.reset = lambda: calls.append('reset')
    state.register_reset_callbacks([lambda: calls.append(1), lambda: calls.append(2)])
    state.register_reset_callbacks([lambda: calls.append(3)])
    state.on_hosts_updated(5, HostUpdateResult.added)
    state.on_reset()
    assert calls == ['reset', 1, 2, 3]
    state.check_host_updates()  # Raises if the news is still there.


@pytest.mark.row('E02')
@pytest.mark.parametrize('changes, skip', [
    ([HostUpdateResult.removed], True),
    ([HostUpdateResult.removed, HostUpdateResult.removed], True),
    ([HostUpdateResult.added], False),
    ([HostUpdateResult.removed, HostUpdateResult.added], False),
    ([HostUpdateResult.mixed], False)])
def test_news_of_hosts_interrupt_once(changes, skip):
    state = state_of()
    state.check_host_updates()
    for timestamp, change in enumerate(changes, 1):
        state.on_hosts_updated(timestamp, change)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync is skip
    state.check_host_updates()
    # As old as the last one, so nothing new.
    state.on_hosts_updated(len(changes), HostUpdateResult.added)
    state.check_host_updates()


@pytest.mark.row('E02')
def test_what_rank_0_has_heard_decides():
    state = state_of(received=(0, 7, HostUpdateResult.removed))
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync
    state = state_of(received=(0, 0, HostUpdateResult.no_update))
    state.on_hosts_updated(7, HostUpdateResult.added)
    state.check_host_updates()


@pytest.mark.row('E01')
def test_a_commit_saves_before_it_interrupts():
    state = state_of(epoch=0)
    state.epoch = 1
    state.on_hosts_updated(1, HostUpdateResult.added)
    with pytest.raises(HostsUpdatedInterrupt):
        state.commit()
    state.epoch = 2
    state.restore()
    assert state.epoch == 1


@pytest.mark.row('E03')
def test_objects_go_back_to_the_last_save():
    state = state_of(epoch=0, history=[], nothing=None)
    state.epoch, state.other = 5, 'not part of the state'
    state.history.append(1)
    state.restore()
    assert (state.epoch, state.history, state.nothing) == (0, [], None)
    state.history.append(2)
    state.epoch = 3
    state.save()
    state.history.append(3)
    state.restore()
    # Once more: what restore() hands out must not be the saved list itself.
    state.history.append(4)
    state.restore()
    assert (state.epoch, state.history, state.other) == (3, [2], 'not part of the state')


@pytest.mark.row('E03')
def test_sync_takes_the_objects_of_rank_0_and_saves_them():
    state = state_of(received={'epoch': 4, 'history': [1]}, epoch=0, history=[])
    state.sync()
    assert (state.epoch, state.history) == (4, [1])
    state.epoch = 9
    state.history.append(2)
    state.restore()
    assert (state.epoch, state.history) == (4, [1])
    # Rank 0 keeps its own objects, uncommitted changes included.
    root = state_of(epoch=0, history=[])
    history = root.history
    root.epoch = 2
    root.sync()
    root.restore()
    assert root.epoch == 2 and root.history == history
    state_of(received={}).sync()  # Nothing to send.


class Recorded(ObjectState):
    """Writes down what the loop calls."""

    def __init__(self, **kwargs):
        self.calls = []
        super().__init__(lambda sent: sent, lambda: 0, **kwargs)

    def sync(self):
        self.calls.append('sync')
        super().sync()

    def restore(self):
        self.calls.append('restore')
        super().restore()

    def on_reset(self):
        self.calls.append('on_reset')
        super().on_reset()


def run_with(*outcomes):
    """Calls a training function with one outcome per attempt, exceptions are raised.

    Returns (what the loop and the function did, the state, the result).
    """
    state, left = Recorded(step=0), list(outcomes)

    def train(given, factor, extra):
        assert given is state and (factor, extra) == (2, 'x')
        state.calls.append(f'train from {state.step}')
        state.step += factor
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    wrapped = run_fn(train, lambda: state.calls.append('reset'))
    assert wrapped.__name__ == 'train'
    return state, lambda: wrapped(state, 2, extra='x')


@pytest.mark.row('E04')
def test_a_run_without_failure_returns_the_result():
    state, run = run_with('done')
    assert run() == 'done'
    assert state.calls == ['sync', 'train from 0']


@pytest.mark.row('E04', 'E13')
def test_a_failure_goes_back_to_the_commit_and_synchronises(caplog):
    state, run = run_with(HorovodInternalError('rank 3 has gone'), 'done')
    assert run() == 'done'
    assert state.calls == ['sync', 'train from 0', 'restore', 'reset', 'on_reset', 'sync',
                           'train from 0']
    assert 'rank 3 has gone' in caplog.text


@pytest.mark.row('E04', 'E13')
def test_an_interrupt_keeps_the_state():
    state, run = run_with(HostsUpdatedInterrupt(False), 'done')
    assert run() == 'done'
    assert state.calls == ['sync', 'train from 0', 'reset', 'on_reset', 'sync', 'train from 2']


@pytest.mark.row('E04')
def test_an_interrupt_may_skip_the_synchronisation_once():
    state, run = run_with(HostsUpdatedInterrupt(True), HorovodInternalError(), 'done')
    assert run() == 'done'
    assert state.calls == ['sync', 'train from 0', 'reset', 'on_reset', 'train from 2',
                           'restore', 'reset', 'on_reset', 'sync', 'train from 0']


def test_a_failure_while_synchronising_is_a_failure():
    state, run = run_with('done')
    before, failures = state.sync, [HorovodInternalError('lost')]

    def sync():
        if failures:
            raise failures.pop()
        before()

    state.sync = sync
    assert run() == 'done'
    assert state.calls == ['restore', 'reset', 'on_reset', 'sync', 'train from 0']


@pytest.mark.row('E04')
@pytest.mark.parametrize('error', [ValueError('own fault'), KeyError('x')])
def test_other_exceptions_reach_the_caller(error):
    state, run = run_with(error)
    with pytest.raises(type(error)):
        run()
    assert state.calls == ['sync', 'train from 0']


def test_a_reset_that_fails_reaches_the_caller():
    # init() says that a rank is missing: StartError is a HorovodInternalError, too.
    def fail():
        raise rueda.exceptions.StartError('rank 1 is missing')

    def train(state):
        raise HorovodInternalError('lost')

    with pytest.raises(rueda.exceptions.StartError, match='rank 1 is missing'):
        run_fn(train, fail)(Recorded())


def test_news_reach_the_states_in_training_only():
    state, heard = Recorded(step=0), []
    outside = copy.copy(state)
    outside.on_hosts_updated = lambda *news: heard.append(news)

    def train(given):
        if given.step == 0:
            given.step = 1
            # As a thread of the program's own would.
            thread = threading.Thread(target=notification_manager.handle_hosts_updated,
                                      args=(1, HostUpdateResult.added))
            thread.start()
            thread.join()
            given.commit()
        return given.step

    assert run_fn(train, lambda: None)(state) == 1
    assert state.calls == ['sync', 'on_reset', 'sync']
    notification_manager.handle_hosts_updated(2, HostUpdateResult.added)
    state.check_host_updates()  # No longer registered.
    assert not heard
    with pytest.raises(ValueError):
        notification_manager.remove_listener(state)
