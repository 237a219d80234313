"""Which models torchvision has, found without importing it: an import takes seconds, this takes a few ms."""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_REGISTERED = re.compile(r"^@register_model\(\)\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)


@cache
def classifiers() -> frozenset[str]:
    """Names of the image classifiers of the installed torchvision; empty when it isn't installed here."""
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return frozenset()
    folder = Path(spec.origin).parent / "models"
    texts = (path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    return frozenset(name for text in texts for name in _REGISTERED.findall(text))
