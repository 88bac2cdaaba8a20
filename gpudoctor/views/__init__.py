"""How results are shown; views know core and nothing else.

- a diagnosis: `text`, `document` (JSON), `markdown`, `html` (with `plots`, `svg`), `junit`, `prometheus`; `_report` is
  what these share, `_terminal` colour and wrapping
- others: `bench`, `diff`, `explain` (rule and fact pages), `fix_run`, `fleet`, `history`, `job`, `plan`, `stack`,
  `progress`; `schema`: the JSON Schemas of all documents
- `tui`: the terminal interface
"""
