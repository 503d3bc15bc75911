"""Reports: a plan or a release explained on one page that asks nothing of any network."""

from residua.report.contents import Contents
from residua.report.gather import plan_contents, release_contents
from residua.report.sections import write_report

__all__ = ["Contents", "plan_contents", "release_contents", "write_report"]
