"""Ctrl-C while planning: one line and the end, or the best plan so far."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import residua as rs
from residua.errors import Infeasible
from residua.methods import registry
from residua.methods.draft import best_of
from residua.methods.effort import Interruption, interruptible, interruption

SPEC = """
schema:
  fields:
  - {name: speed, type: integer, constraints: {minimum: 0, maximum: 3999}}
tables:
- {families: {speed: prefix}}
privacy: {definition: %s, unit: {max_records: 1, neighbours: add_remove}}
"""
BUDGETS = {"gaussian": "zcdp, rho: 0.1", "laplace": "pure_dp, epsilon: 1"}
FACTORISED = """
import threading, time, signal, os
import residua as rs
def interrupt():
    time.sleep({moment})
    print("sent", flush=True)
    os.kill(os.getpid(), signal.SIGINT)
schema = rs.Schema(speed=rs.Integer(0, 3_999))
threading.Thread(target=interrupt, daemon=True).start()
try:
    rs.plan(rs.table(schema, speed=rs.prefix), rs.zcdp(1))
except KeyboardInterrupt:
    print("ended")
"""
"""Planning it takes many decompositions of 4,000 x 4,000 matrices, ten seconds each."""


@pytest.fixture(autouse=True)
def ctrl_c_is_pythons_own():
    """Whatever other tests have left, and though a shell starts tests in the background without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)


def sent() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


@pytest.mark.parametrize("law", BUDGETS)
@pytest.mark.parametrize("moment", [0.0, 1.5])
def test_planning_on_the_command_line_ends_with_one_line(tmp_path, law, moment):
    """Whether it has begun to factorise or not: the signal is sent once it says what it does."""
    (tmp_path / "spec.yaml").write_text(SPEC % BUDGETS[law])
    program = (
        "import sys; from residua.cli import main; from residua.spec import Spec; plan = Spec.plan\n"
        "Spec.plan = lambda *a: print('planning', flush=True) or plan(*a)\n"
        "sys.argv = ['residua', 'plan', 'spec.yaml']; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "planning\n"
    time.sleep(moment)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)  # which shells show alike
    assert (rest, errors) == ("", "stopped\n")


@pytest.mark.parametrize("moment", [0.2, 2.0])
def test_planning_in_python_ends_with_keyboard_interrupt(moment):
    program = FACTORISED.format(moment=moment)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (found.stdout.split(), found.stderr) == (["sent", "ended"], "")


def test_ctrl_c_is_raised_at_once_and_in_the_work():
    noticed = threading.Event()

    def work():
        try:
            sent()
            while True:
                time.sleep(0.001)
        except KeyboardInterrupt:
            noticed.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        interruptible(work, Interruption(keeps=False))
    assert noticed.wait(10)


def test_what_work_returns_and_raises_comes_back():
    assert interruptible(lambda: 3, Interruption(keeps=False)) == 3
    with pytest.raises(Infeasible, match="no way"):
        interruptible(lambda: (_ for _ in ()).throw(Infeasible("no way")), Interruption(keeps=False))
    assert not interruption().keeps


def test_the_best_so_far_is_kept_where_it_is_asked_for():
    schema = rs.Schema.of_sizes([4])
    work = rs.table(schema, [schema.names[0]])
    draft = rs.methods.Draft(
        rs.methods.strategy_of(schema, [({schema.names[0]: np.eye(4)}, 1.0)]), 0.0, "all mechanisms"
    )
    tried = []

    def long_way():
        sent()
        while True:
            time.sleep(0.001)

    def made():
        inner = best_of(work, [lambda: draft, long_way, lambda: tried.append("inner")])
        return best_of(work, [lambda: inner, lambda: tried.append("outer")])

    own = Interruption(keeps=True)
    assert interruptible(made, own) is draft
    assert own.came
    assert tried == []
    with pytest.raises(KeyboardInterrupt):
        interruptible(lambda: best_of(work, [lambda: draft, long_way]), Interruption(keeps=False))


def test_without_a_plan_so_far_that_of_quick_effort_is_made(monkeypatch):
    efforts = []

    def method(work, gap, progress):
        efforts.append(work)
        if len(efforts) == 1:
            sent()
            while True:
                time.sleep(0.001)
        return rs.methods.Draft(
            rs.methods.strategy_of(work.schema, [({"x": np.eye(3)}, 1.0)]), 0.0, "all mechanisms"
        )

    monkeypatch.setitem(registry._METHODS["gaussian"], "slow", method)
    work = rs.table(rs.Schema(x=rs.Integer(0, 2)), ["x"])
    plan = rs.plan(work, rs.zcdp(1), method="slow", interrupt="best")
    assert len(efforts) == 2
    assert plan.undone == ("what was not tried before planning was ended",)
    efforts.clear()
    with pytest.raises(KeyboardInterrupt):
        rs.plan(work, rs.zcdp(1), method="slow")


def test_what_ctrl_c_does_is_one_of_two_things():
    work = rs.table(rs.Schema(x=rs.Integer(0, 2)), ["x"])
    with pytest.raises(rs.WorkloadError, match="interrupt is 'stop' or 'best'"):
        rs.plan(work, rs.zcdp(1), interrupt="never")
