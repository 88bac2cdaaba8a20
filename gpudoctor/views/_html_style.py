"""How the report looks on a page of its own, and as a part of another: every selector begins at our own class."""

from __future__ import annotations

from gpudoctor.views.plots import STYLE

_COMMON = """
.gpudoctor { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); overflow-wrap: anywhere; }
.gpudoctor h1, .gpudoctor [aria-level="1"] { font-size: 1.4em; font-weight: 700; margin: .6em 0;
  border-left: .3em solid var(--mark); padding-left: .5em; }
.gpudoctor h2, .gpudoctor [aria-level="2"] { font-size: 1.15em; font-weight: 700; margin: 1.2em 0 .4em; }
.gpudoctor section > :first-child { margin-top: 0; }
.gpudoctor h3, .gpudoctor [aria-level="3"] { font-size: 1em; font-weight: 700; margin: 1em 0 .3em; }
.gpudoctor p { margin: .4em 0; }
.gpudoctor section { border: 1px solid var(--line); border-left: .4em solid var(--mark, var(--line));
  border-radius: .3em; padding: 1em; margin: 1em 0; }
.gpudoctor .error, .gpudoctor .broken { --mark: var(--error); }
.gpudoctor .warning, .gpudoctor .impaired { --mark: var(--warning); }
.gpudoctor .info, .gpudoctor .unknown { --mark: var(--info); } .gpudoctor .sound { --mark: var(--sound); }
.gpudoctor .word { color: var(--mark); } .gpudoctor .quiet { color: var(--quiet); }
.gpudoctor pre { background: var(--panel); color: inherit; padding: .6em .8em; border-radius: .3em;
  white-space: pre-wrap; margin: .4em 0; }
.gpudoctor code { background: none; color: inherit; padding: 0; }
.gpudoctor code, .gpudoctor pre { font-family: ui-monospace, monospace; font-size: .9em; }
.gpudoctor table { border-collapse: collapse; width: 100%; margin: 0; font-size: 1em; table-layout: auto; }
.gpudoctor table tr { background: none; }
.gpudoctor table tr td, .gpudoctor table tr th { text-align: left; vertical-align: top; max-width: none;
  white-space: normal; border: 0; border-bottom: 1px solid var(--line); padding: .25em .6em .25em 0; }
.gpudoctor summary { cursor: pointer; }
"""
PAGE = f"""
:root {{ color-scheme: light dark; }}
body {{ margin: 0; background: var(--paper); }}
:root {{ --ink: #1c1c1c; --quiet: #595959; --paper: #fff; --panel: #f2f2f2; --line: #d0d0d0;
  --error: #b00000; --warning: #7a5000; --info: #005faf; --sound: #006b38; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #d7d7d7; --quiet: #a0a0a0; --paper: #121212; --panel: #1f1f1f; --line: #3a3a3a;
    --error: #ff7b7b; --warning: #ffd75f; --info: #7fbfff; --sound: #5fd787; }} }}
{_COMMON}{STYLE}
.gpudoctor.page {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
@media print {{
  :root {{ --ink: #000; --quiet: #444; --paper: #fff; --panel: #f2f2f2; --line: #bbb;
    --error: #b00000; --warning: #7a5000; --info: #005faf; --sound: #006b38; }}
  .gpudoctor.page {{ max-width: none; margin: 0; font-size: 11px; }}
  .gpudoctor section {{ break-inside: avoid; }} .gpudoctor h2 {{ break-after: avoid; }}
}}
"""
"""For a page of its own: the reader's system says whether it is light or dark; paper is light."""

CELL = f"""
.gpudoctor.cell {{ --ink: currentColor; --quiet: color-mix(in srgb, currentColor 70%, transparent);
  --panel: color-mix(in srgb, currentColor 8%, transparent); --line: color-mix(in srgb, currentColor 22%, transparent);
  --error: #d64545; --warning: #a87500; --info: #2f7fc9; --sound: #2c8f57; }}
{_COMMON}{STYLE}
.gpudoctor.cell {{ font-size: 14px; color: inherit; max-width: 60rem; }}
"""
"""For a notebook: ink and paper are those of its theme, and the marks are told from both white and black."""
