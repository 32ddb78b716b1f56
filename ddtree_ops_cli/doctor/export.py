"""The doctor as one script: the very source of `portable`, and what is to run there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..output.files import write_whole

_PACKAGE = "ddtree_doctor"
_HEAD = '''#!/usr/bin/env python3
"""ddtree doctor {version}: can this host or container run SGLang with DDTree?

Written by `ddtree doctor --export`. It needs Python 3.8 or later and nothing else, reads only,
and sends nothing anywhere. `python3 FILE` for people, `python3 FILE --json` for programs. Exit code
0: no blocking check failed; 8: one did; 1: it could not look.
"""

import sys

if sys.version_info < (3, 8):
    sys.exit("ddtree doctor needs Python 3.8 or newer; this is %s" % sys.version.split()[0])


def lacking(error):
    what = (type(error).__name__, error)
    sys.exit("ddtree doctor: this Python lacks a part of its standard library: %s: %s" % what)


try:
    import importlib.abc
    import importlib.util
    import json
except Exception as error:
    lacking(error)

INTENT = json.loads(r"""{intent}""")
SOURCES = {{}}
'''
_FOOT = f'''

class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports {_PACKAGE} from the sources above."""

    def find_spec(self, name, path=None, target=None):
        if name not in SOURCES:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=name == "{_PACKAGE}")

    def exec_module(self, module):
        exec(compile(SOURCES[module.__name__], module.__name__, "exec"), module.__dict__)


sys.meta_path.insert(0, _Finder())

if __name__ == "__main__":
    try:
        from {_PACKAGE}.script import main
    except Exception as error:
        lacking(error)
    sys.exit(main(INTENT))
'''


def script(intent: Mapping[str, Any], *, version: str) -> str:
    """The script; equal inputs give equal text."""
    # Triple quotes end the text that it stands in, so JSON's are written otherwise.
    told = json.dumps(intent, sort_keys=True).replace('"""', '"\\u0022"')
    parts = [_HEAD.format(version=version, intent=told)]
    for file in sorted((Path(__file__).parent / "portable").glob("*.py")):
        name = _PACKAGE if file.stem == "__init__" else f"{_PACKAGE}.{file.stem}"
        source = file.read_text(encoding="utf-8")
        if "'''" in source:
            raise ValueError(f"{file}: ''' would end the text that it is carried in")
        parts.append(f"\nSOURCES[{name!r}] = r'''\n{source}'''\n")
    return "".join(parts) + _FOOT


def write(file: Path, text: str) -> None:
    """An executable file, whole or not at all. DdtreeError if it cannot be written."""
    write_whole(file, text, mode=0o755)
