"""What is due when: scripts of what happens to a schedule, with minSyncPeriod 1 s and syncPeriod 30 s.

`5:change`, `5:inputs`, `5:foreign`: something new at 5 s. `5:-`: nothing is due, `5:next=6`: before 6 s.
`5:partial+0.1`: a partial sync is due, and takes 0.1 s. Behind it: `=` without a difference, `!` it fails, `x` it is
cancelled, `*` it was a full one in the end.
`5:sweep`: a sweep is due, and succeeds; `5:sweep!` it does not.
"""

import re

import pytest

from kdns.proxy.sync.schedule import Schedule, Step, SyncTiming

SCRIPTS = {
    "the first sync is a full one, and the next one comes an hour later": (
        "0:full+0.1 0.1:- 0.1:next=3600.1 3600:- 3600.2:full+0.1 3600.3:next=7200.3"
    ),
    "a change after a quiet time is synced at once": "0:full+0.1 5:- 5:change 5:partial+0.002 5.1:-",
    "changes in a row rest as long as a sync takes": (
        "0:full+0.1 5:change 5:partial+0.002 5.002:change 5.002:next=5.004 5.003:- 5.004:partial+0.001 5.005:-"
    ),
    "for minSyncPeriod at most": "0:full+0.1 5:change 5:partial+2 7:change 7:next=8 7.9:- 8:sweep 8:partial+2",
    "changes during a sync are synced by the next one": (
        "0:full+0.1 5:change 5:partial+0.002&change 5.002:next=5.004 5.004:partial+0.002"
    ),
    "full syncs are minSyncPeriod apart": "0:full+0.1 0.5:inputs 0.5:- 0.5:next=1.1 1.1:full+0.1 9:inputs 9:full+0.1",
    "a full sync includes changes": "0:full+0.1 5:change 5:inputs 5:full+0.1 5.5:-",
    "changes wait for a full sync of other inputs": "0:full+0.1 0.5:inputs 0.5:change 0.5:- 1.1:full+0.1 1.5:-",
    "what is unused is swept a second later, before the next sync": (
        "0:full+0.1 5:change 5:partial+0.002 5.5:change 5.5:partial+0.002 6:- 6:change 6.002:sweep 6.002:partial+0.002"
        " 7.004:sweep 8:-"
    ),
    "without a difference nothing is unused": "0:full+0.1 5:change 5:partial+0.002= 5.1:next=3600.1",
    "a sweep that fails is tried again": "0:full+0.1 5:change 5:partial+0.002 6.002:sweep! 7:- 7.002:sweep 9:-",
    "after a failure nothing is swept before a full sync": (
        "0:full+0.1 5:change 5:partial+0 5.5:change 5.5:partial+0! 6:- 6.5:full+0.1 6.7:- 9:-"
    ),
    "a partial sync that becomes a full one": "0:full+0.1 5:change 5:partial+0.1* 5.5:inputs 5.5:next=6.1 5.6:-",
    "failures double the pause up to syncPeriod": (
        "0:full+0! 0:next=1 1:full+0! 1:next=3 3:full+0! 7:full+0! 15:full+0! 31:full+0! 31:next=61 61:full+0!"
        " 91:full+0 91:next=3691 100:change 100:partial+0! 100:next=101"
    ),
    "a change does not wait for the retry, but for the rest": (
        "0:full+0! 1:full+0! 3:full+0! 3:change 3:- 3:next=4 4:full+0! 4:- 12:full+0 13:-"
    ),
    "the rest is three times as long as the failure took": (
        "0:full+0! 1:full+0! 3:full+0! 7:full+0! 15:full+0! 31:full+2! 33:next=63 33:change 33:next=39 39:full+1"
    ),
    "and ends with the pause": "0:full+2! 2:change 2:next=3 3:full+4! 7:change 7:next=9 9:full+1",
    "a change during a failed sync hurries the retry": "0:full+0! 1:full+0! 3:full+0!&change 4:full+0",
    "a cancelled sync is followed by a full one": "0:full+0.1 5:change 5:partial+0.002x 5.1:full+0.1",
    "a foreign change is repaired at once": "0:full+0.1 5:foreign 5:full+0.1 5.2:-",
    "but repairs are minSyncPeriod apart": "0:full+0.1 5:foreign 5:full+0.1 5.2:foreign 5.2:next=6.1 6.1:full+0.1",
    "a series of them takes a quarter of the time": (
        "0:full+0.1 10:foreign 10:full+5 16:foreign 16:full+5 22:foreign 22:full+5 28:foreign 28:full+5"
        " 34:foreign 34:next=48 47:- 47:change 47:partial+0 47.9:- 48:sweep 48:full+5 53:foreign 67:- 68:full+5"
    ),
    "which ends when none came for a minute": (
        "0:full+0.1 10:foreign 10:full+5 16:foreign 16:full+5 22:foreign 22:full+5 28:foreign 28:full+5"
        " 94:foreign 94:full+5 100:foreign 100:full+5"
    ),
    "no rest is longer than syncPeriod": (
        "0:full+0.1 10:foreign 10:full+20 31:foreign 31:full+20 52:foreign 52:full+20 73:foreign 73:full+20"
        " 94:foreign 94:next=123 123:full+20"
    ),
    "a quick repair needs no rest": " ".join(
        ["0:full+0.1", *(f"{5 * n}:foreign {5 * n}:full+0.1" for n in range(1, 30))]
    ),
    "changes do not wait for a repair": "0:full+0.1 0.5:foreign 0.5:change 0.5:partial+0 1:- 1.1:full+0.1",
}
ROUNDING_S = 1e-6
EVENT = {"change": Schedule.changed, "inputs": Schedule.inputs_changed, "foreign": Schedule.foreign_change}
SYNC = re.compile(r"(?P<step>full|partial)\+(?P<took>[0-9.]+)(?P<end>[!=x*]?)(?:&(?P<event>\w+))?")


def play(schedule: Schedule, now_s: float, what: str) -> None:
    if event := EVENT.get(what):
        event(schedule)
    elif what == "-":
        assert schedule.due(now_s + ROUNDING_S) is None
        assert schedule.next_s > now_s
    elif what.startswith("next="):
        assert schedule.next_s == pytest.approx(float(what.removeprefix("next=")))
    elif what.startswith("sweep"):
        assert schedule.due(now_s + ROUNDING_S) is Step.SWEEP
        if what == "sweep":
            schedule.swept()
        else:
            schedule.sweep_failed(now_s)
    else:
        sync = SYNC.fullmatch(what)
        assert sync, what
        step, end = Step[sync["step"].upper()], sync["end"]
        assert schedule.due(now_s + ROUNDING_S) is step
        schedule.begin(step, now_s)
        if sync["event"]:
            EVENT[sync["event"]](schedule)
        now_s += float(sync["took"])
        if end == "!":
            schedule.failed(now_s)
        elif end == "x":
            schedule.cancelled()
        else:
            is_full = step is Step.FULL or end == "*"
            unused = step is Step.PARTIAL and end not in {"=", "*"}
            schedule.succeeded(now_s, is_full=is_full, leaves_unused=unused)


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_due(name: str) -> None:
    schedule = Schedule(SyncTiming())
    for line in SCRIPTS[name].split():
        at_s, _, what = line.partition(":")
        try:
            play(schedule, float(at_s), what)
        except AssertionError as error:
            raise AssertionError(f"{line}: due {schedule.due(float(at_s))}, next at {schedule.next_s}") from error


@pytest.mark.parametrize("event", EVENT)
def test_what_is_pending(event: str) -> None:
    schedule = Schedule(SyncTiming())
    seen = [schedule.is_pending]
    for step in (Step.FULL, Step.FULL):
        schedule.begin(step, 0.0)
        seen.append(schedule.is_pending)
        schedule.succeeded(0.1, is_full=True)
        EVENT[event](schedule)
        seen.append(schedule.is_pending)
    assert seen == [True, False, True, False, True]
