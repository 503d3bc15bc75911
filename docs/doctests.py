"""Shows the examples in docstrings as code: a run of lines from `>>>` to the next empty one gets a fence."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n\S.*)*", flags=re.MULTILINE)


class FencedExamples(griffe.Extension):
    """Puts fences around examples when a docstring has been collected."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the text of one object's docstring."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
