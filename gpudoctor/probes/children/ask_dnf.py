"""Read the history that dnf keeps (SQLite): which packages each of the newest transactions exchanged.

Run as ``python -I -S ask_dnf.py PATH PATTERN``; the database of dnf 4 or 5, and a regular expression for the names of
packages. Prints one line a change, ``@gpudoctor`` and a JSON object: ``{"name", "before", "after", "at", "by",
"user"}``, `at` in seconds since 1970, `user` a number; ``{"done": true}`` is the last line. Standard library only;
Python 3.8.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from typing import Any, Dict, Iterator, List, Tuple

_TRANSACTIONS = 200
_ROWS = 400
_OUT = {4: (3, 5, 7, 8, 10), 5: (5, 6)}
"""Actions by which a version goes, in dnf 4: downgraded, obsoleted, upgraded, removed, reinstalled; in dnf 5: removed,
replaced. By all others but a change of reason (11, 7) it comes."""
_REASON = {4: 11, 5: 7}
_QUERY = """
select trans.id, trans.dt_begin, {command}, trans.user_id, {name}, rpm.version, rpm.release, trans_item.{action}
from trans join trans_item on trans_item.trans_id = trans.id join rpm on rpm.item_id = trans_item.item_id {names}
where trans.id > (select max(id) from trans) - {most} order by trans.id desc
"""


def changes(path: str, pattern: str) -> Iterator[Dict[str, Any]]:
    """Yields package changes of the newest transactions in dnf's database, the newest first; raises `sqlite3.Error`.

    `pattern`: regular expression for package names. Keys: name, before, after, at (seconds since 1970), by (command),
    user (id); a version is empty where there was none.
    """
    database = sqlite3.connect(
        "file:" + path.replace("%", "%25").replace("?", "%3f") + "?mode=ro&immutable=1", uri=True
    )
    try:
        schema, query = _schema_and_query(database)
        name_pattern = re.compile(pattern)
        found: Dict[Tuple[int, str], List[str]] = {}
        transactions: Dict[int, Tuple[Any, Any, Any]] = {}
        for number, at, command, user, name, version, release, action in database.execute(query):
            if not name_pattern.search(str(name)) or action == _REASON[schema]:
                continue
            transactions[number] = (at, command, user)
            pair = found.setdefault((number, str(name)), ["", ""])
            pair[action not in _OUT[schema]] = "{}-{}".format(version, release)
            if len(found) > _ROWS:
                break
        for (number, name), (before, after) in found.items():
            at, command, user = transactions[number]
            if before != after:
                yield {"name": name, "before": before, "after": after, "at": at, "by": command or "", "user": user}
    finally:
        database.close()


def _schema_and_query(database: sqlite3.Connection) -> Tuple[int, str]:
    """The schema's version, 4 or 5 as dnf's, and the SQL query for package changes in it."""
    tables = {row[0] for row in database.execute("select name from sqlite_master where type = 'table'")}
    columns = {row[1] for row in database.execute("pragma table_info(trans)")}
    command = "trans.cmdline" if "cmdline" in columns else "trans.description"
    names = next((table for table in ("pkg_name", "pkg_names") if table in tables), "")
    is_dnf5 = bool(names) or "state_id" in columns
    joined = "join {0} on {0}.id = rpm.name_id".format(names) if names else ""
    name = names + ".name" if names else "rpm.name"
    action = "action_id" if is_dnf5 else "action"
    query = _QUERY.format(command=command, name=name, action=action, names=joined, most=_TRANSACTIONS)
    return 5 if is_dnf5 else 4, query


if __name__ == "__main__":
    for change in changes(sys.argv[1], sys.argv[2]):
        print("@gpudoctor " + json.dumps(change))
    print('@gpudoctor {"done": true}')
