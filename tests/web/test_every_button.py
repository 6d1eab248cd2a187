"""Every button of every page is an action that its form's address knows."""

from __future__ import annotations

import re
from importlib.resources import files
from uuid import uuid4

from tests.web.conftest import Make

_FORM = re.compile(r'<form[^>]*action="\{\{ url\(([^}]*)\) \}\}"[^>]*>(.*?)</form>', re.DOTALL)
_BUTTON = re.compile(r'name="act" value="(\w+)"')


def buttons() -> set[tuple[str, str]]:
    """(path of the form, value of the button)"""
    found = set()
    for template in files("leasework.web").joinpath("templates").iterdir():
        for where, inside in _FORM.findall(template.read_text("utf-8")):
            path = "jobs/{job}/act" if "job.id" in where else where.split("'")[1]
            found |= {(path, act) for act in _BUTTON.findall(inside)}
    return found


async def test_every_button_is_known_to_its_address(make: Make):
    every = buttons()
    assert len(every) > 20 and ("jobs/{job}/act", "signal") in every, every
    async with make() as inside:
        token = await inside.form_token("/now")
        for path, act in sorted(every):
            where = path.format(job=uuid4())
            page = await inside.post(f"/{where}", act=act, form_token=token)
            assert "no such action" not in page.text, (path, act)
            assert "Page not found" not in page.text, (path, act)
            assert page.status_code not in (405, 500), (path, act)
