"""What the last publication changed, on the overview."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.data import Changed, PoolChange
from dashboards.site import render_pages


def section_of(data):
    page = dict(render_pages(data))["index.html"]
    return page.split('id="changed"')[1].split("</section>")[0] if 'id="changed"' in page else None


@pytest.fixture
def changed(site_data):
    pools = (
        PoolChange("batch-8b", "kept", 0.0, {}),
        PoolChange(
            "chat-70b",
            "kept",
            -1.25,
            {"demand chat": -4.0, "bounds": 2.5, "margins": 1.0, "capacity": -0.5, "quota": -0.25},
        ),
        PoolChange("gone", "removed", 0.0, {}),
    )
    return Changed(version=41, issued_at=site_data.now, pools=pools)


def test_pools_that_changed_have_a_row_with_the_causes_that_moved_most(site_data, changed):
    section = section_of(replace(site_data, changed=changed))
    rows = section.split("<tbody>")[1].split("</tr>")[:-1]
    assert len(rows) == 2, "a pool whose floors are as they were has none"
    assert "-1.2" in rows[0]
    assert "demand chat -4.0, bounds +2.5, margins +1.0, capacity -0.5, and 1 more" in " ".join(rows[0].split())
    assert ">removed<" in rows[1]
    assert "Against version 41" in section


def test_floors_that_all_stayed_are_said(site_data, changed):
    section = section_of(replace(site_data, changed=replace(changed, pools=changed.pools[:1])))
    assert "No floor." in section


def test_a_first_publication_has_nothing_to_compare_with(site_data):
    assert section_of(site_data) is None
