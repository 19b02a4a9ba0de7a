"""The native engine is taken where it can be loaded, the one in Python where it cannot."""

import os
import subprocess
import sys

import pytest

from outlive.wiring.screens import open_screens

_NAME = "from outlive.wiring.screens import open_screens; print(open_screens().name)"


def test_the_native_engine_is_the_usual_one() -> None:
    assert open_screens().name == "ghostty"


@pytest.mark.parametrize("missing", ["library", "package"])
def test_without_the_native_engine_screens_are_made_in_python(missing: str) -> None:
    program = _NAME if missing == "library" else f"import sys; sys.modules['pyghostty'] = None; {_NAME}"
    environment = {**os.environ, "PYGHOSTTY_LIB": "/nowhere/lib.so"}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.returncode) == ("bittty\n", 0), ran.stderr
