"""A process that is killed at some moment, and what it reported until then."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Child:
    """A forked process that runs `work(report)`; what it reports arrives through a pipe.

    The work goes on for ever, unless it `ends`: then it may be done before the kill.
    """

    work: Callable[[Callable[[str], None]], None]
    ends: bool = False
    pid: int = field(init=False)
    pipe: int = field(init=False)

    def __post_init__(self) -> None:
        self.pipe, far_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                self.work(lambda line: os.write(far_end, f"{line}\n".encode()))
                code = 0
            finally:
                os._exit(code)
        os.close(far_end)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        done = self.ends and os.waitstatus_to_exitcode(status) == 0
        assert done or os.WIFSIGNALED(status), "the child ended by itself, so its work failed"

    def reports(self) -> list[str]:
        with open(self.pipe) as stream:
            return stream.read().splitlines()
