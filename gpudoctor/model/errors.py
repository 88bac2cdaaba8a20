"""What can go wrong for the user, as one small tree.

DoctorError           one line, says what to do; exit code 2
|-- DocumentError     a file that is not what it should be
|-- RuleError         a broken rule page or table
`-- UsageError        an option or argument that cannot be met
    `-- ExtraError    one that needs a package which is not there
"""


class DoctorError(Exception):
    """A problem with what we were given; its text is one line that says what to do, and holds no secret."""

    def __str__(self) -> str:
        from gpudoctor.model.secrets import without_secrets

        return without_secrets(super().__str__())


class DocumentError(DoctorError):
    """A snapshot, report or document that cannot be read."""


class RuleError(DoctorError):
    """A rule page or table that is broken."""


class UsageError(DoctorError):
    """An option or argument that cannot be met."""


class ExtraError(UsageError):
    """One that needs a package of an extra, in the environment that gpudoctor itself runs in."""

    def __init__(self, said: str, extra: str) -> None:
        import shlex
        import sys

        super().__init__(f"{said}: {shlex.quote(sys.executable)} -m pip install 'gpudoctor[{extra}]'")
