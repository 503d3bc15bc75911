"""Sections of a report about what a plan promises: its proof, targets, and what is foreseen."""

import math

from residua.accuracy.guesses import FORESEEN_HEAD
from residua.report import markup as html
from residua.report.contents import Contents
from residua.report.words import SCOPES, gap_text, near_text, percent


def certificate(contents: Contents) -> str:
    """How far from the best it can be."""
    goal = contents.goal
    proof = goal.certificate
    rows = [
        (f"{goal.words} as released", goal.achieved),
        (f"{goal.words} with unrounded noise", goal.ideal),
        ("proved lower bound", proof.lower_bound or math.nan),
    ]
    listed = [(words, f"{value:,.6g}") for words, value in rows if not math.isnan(value)]
    words = [f"The plan makes the {goal.words} of its numbers as small as it can."]
    other = "; one that does not may be better" if proof.scope == "this block structure" else ""
    if math.isfinite(proof.gap):
        listed.append(("gap", gap_text(proof.gap)))
        words.append(
            f"Its certificate: it is proved that none below {proof.lower_bound:,.6g} is possible at this "
            f"budget, and this plan is {near_text(proof.gap)} above that. The bound holds for "
            f"{SCOPES[proof.scope]}{other}."
        )
        if proof.everywhere is not None:
            near = near_text(proof.everywhere_gap)
            words.append(f"It is {near} above a proved lower bound for {SCOPES['all mechanisms']}.")
    else:
        words.append("No lower bound is known for this plan.")
    table = html.table(f"The {goal.words} of all numbers", ("what", "value"), listed) if listed else ""
    return f"{html.paragraphs(words)}\n{table}"


def targets(contents: Contents) -> str:
    """Targets, and what each costs."""
    rows = [
        (
            target.name,
            target.target.describe(),
            f"{target.queries:,}",
            f"{target.ratio:.4f}",
            f"up to {percent(target.saving())}" if target.binds else "nothing",
        )
        for target in contents.targets
    ]
    head = ("target", "asked", "numbers", "largest variance over target", "10% more variance saves")
    words = "Accuracy was asked for; a target is met where the largest variance over the target is at most 1."
    return html.paragraphs([words]) + html.table("Accuracy targets and their price", head, rows, left=(1,))


def foreseen(contents: Contents) -> str:
    """Errors of percentages, means and medians at guessed sizes."""
    words = (
        "Standard errors that these will have if the numbers are about as large as was guessed, without any "
        "data: of percentages in percentage points, of means and medians in the unit of the number. The "
        "middle one of each table's figures, and the least certain one."
    )
    rows = [each.row() for each in contents.foreseen]
    listed = html.table("At the guessed sizes", FORESEEN_HEAD, rows, tall=len(rows) > 15)
    return html.paragraphs([words]) + listed
