"""The words behind ``pip install`` and on the option lines of requirements.txt, which are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpudoctor.readers._lists import words

_INDEX = ("-i", "--index-url", "--pypi-url", "--default-index")
_MORE = ("--extra-index-url", "-f", "--find-links", "--index")
_FILES = ("-r", "--requirement", "-c", "--constraint")
_ALONE = ("-e", "--editable")
_VALUED = words(
    """
    --hash --trusted-host --no-binary --only-binary --target -t --prefix --root --python -p --src --platform
    --python-version --implementation --abi --global-option --config-settings -C --progress-bar --timeout --retries
    --proxy --cache-dir --upgrade-strategy --torch-backend --index-strategy --log --cert --report --use-feature --group
    --extra --prerelease --keyring-provider --link-mode --resolution --exclude-newer --no-build-isolation-package --name
    -n
    """
)


@dataclass(slots=True)
class Options:
    """What the options say: the index asked instead of PyPI, those asked besides, files and projects that are named."""

    index: str = ""
    more: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    projects: list[str] = field(default_factory=list)
    backend: str = ""
    no_index: bool = False


def told(typed: Sequence[str], options: Options) -> Iterator[str]:
    """The requirements among the words that were typed; what the options say is put into `options`."""
    rest = iter(typed)
    for word in rest:
        if not word.startswith("-"):
            yield word
            continue
        name, _, value = word.partition("=")
        if name[:2] in ("-i", "-f", "-r", "-c", "-e") and len(name) > 2 and not name.startswith("--"):
            name, value = word[:2], word[2:]
        if not value and (name in _VALUED or name in (*_INDEX, *_MORE, *_FILES, *_ALONE)):
            value = next(rest, "")
        _take(name, value, options)


def _take(name: str, value: str, options: Options) -> None:
    if name in _INDEX:
        options.index = value
    elif name in _MORE:
        options.more.append(value)
    elif name in _FILES:
        options.files.append(value)
    elif name in _ALONE:
        options.projects.append(value)
    elif name == "--torch-backend":
        options.backend = value
    elif name == "--no-index":
        options.no_index = True
