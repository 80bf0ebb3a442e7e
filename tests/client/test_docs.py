"""The examples of the how-to run against a real server, one after the other."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.peers import ServerProcess

PAGE = Path(__file__).parents[2] / "docs/howto/use-the-client.md"


def test_the_examples_of_the_howto_run(own_server: ServerProcess) -> None:
    """The last example names servers that do not exist, so it is only compiled."""
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 6
    shown = []
    for number, example in enumerate(examples):
        text = example.replace("connect()", f"connect({own_server.url!r})")
        text = text.replace("connect_blocking()", f"connect_blocking({own_server.url!r})")
        text = text.replace("nats://127.0.0.1:4222", own_server.url)
        code = compile(text, f"example {number + 1} of {PAGE.name}", "exec")
        output = io.StringIO()
        if number < 5:
            with contextlib.redirect_stdout(output):
                exec(code, {"__name__": "__main__"})
        shown.append(output.getvalue().splitlines())
    assert shown[0][0] == "b'hello anna'"
    assert shown[0][1] == "news.sport b'1:0' {'Source': ['stadium']}"
    assert shown[1][0] == "1000 stored"
    assert len(shown[1]) == 101
    assert shown[2] == ["1001"]
    assert len(shown[3]) == 1002
    assert shown[4][0].startswith("1002 ")
