"""Who may open the rooms that privacy rests on: measuring, the kernel, audits, and the command line."""

import grimp
import pytest

MAY_OPEN = {
    "engines": {"_contributions", "_measure", "kernel", "cli", "spec", "stream"},
    "noise": {"_contributions", "_measure", "kernel", "audit", "stream"},
    "ledger": {"_contributions", "_measure", "kernel", "cli", "audit", "evidence", "stream"},
}


def intruders(graph: grimp.ImportGraph, room: str) -> set[str]:
    """The modules that import something of a room without leave; the package itself only re-exports."""
    inside = {name for name in graph.modules if name.split(".")[1:2] == [room]}
    importers = {name for each in inside for name in graph.find_modules_that_directly_import(each)}
    leave = MAY_OPEN[room] | {room}
    return {name for name in importers - {"residua"} if name.split(".")[1] not in leave}


@pytest.mark.parametrize("room", MAY_OPEN)
def test_only_those_with_leave_open_a_side_room(room):
    assert intruders(grimp.build_graph("residua", cache_dir=None), room) == set()


@pytest.mark.parametrize("room", MAY_OPEN)
def test_an_intruder_is_found_and_those_with_leave_are_not(room):
    graph = grimp.ImportGraph()
    inner = f"residua.{room}.inner"
    for importer in ("residua", "residua._measure", f"residua.{room}", "residua.report.sections"):
        graph.add_import(importer=importer, imported=inner)
    graph.add_import(importer="residua.cli", imported=f"residua.{room}")
    expected = {"residua.report.sections"} if room != "noise" else {"residua.report.sections", "residua.cli"}
    assert intruders(graph, room) == expected
