"""Lists as files: CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from leasework import errors

Row = dict[str, Any]
FORMATS = ("csv", "json")


def wanted(request: Request) -> str:
    """The format of the file that the request asks for, or '' for the page. Raises ConfigError."""
    form = request.query_params.get("format", "")
    if form and form not in FORMATS:
        raise errors.ConfigError("no such format", got=form[:40], do=errors.suggest(form, FORMATS))
    return form


def download(form: str, name: str, rows: Sequence[Row]) -> Response:
    """The rows as a file. In CSV, each name that any of them has is a column."""
    if form == "json":
        text = json.dumps(rows, indent=1, ensure_ascii=False, default=str)
    else:
        out = io.StringIO()
        writer = csv.DictWriter(out, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writerow({key: _cell(key) for key in writer.fieldnames})
        writer.writerows({key: _cell(part) for key, part in row.items()} for row in rows)
        text = out.getvalue()
    kind = "application/json" if form == "json" else "text/csv; charset=utf-8"
    headers = {"content-disposition": f'attachment; filename="{name}.{form}"'}
    return Response(text, media_type=kind, headers=headers)


def _cell(value: Any) -> Any:
    """Numbers as they are. A spreadsheet must not take a text for a formula."""
    if value is None or isinstance(value, int | float):
        return value
    nested = isinstance(value, dict | list)
    text = json.dumps(value, ensure_ascii=False, default=str) if nested else str(value)
    return f"'{text}" if text.startswith(tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")) else text
