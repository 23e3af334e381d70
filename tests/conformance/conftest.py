"""A client of the daemon, and sessions over the vocabulary of bug_report_sessions."""

from __future__ import annotations

import pytest
from constraintd_client import ConstraintClient

from tests.conformance.bug_report_sessions import EOGS, SPECIAL, TOKENS, WIDTH, Sessions


@pytest.fixture
def client(daemon):
    with ConstraintClient(daemon, timeout=120) as client:
        yield client


@pytest.fixture
def sessions(client):
    info = client.register_token_table(TOKENS, special=SPECIAL, eog_ids=EOGS, logits_width=WIDTH)
    return Sessions(client, info.vocabulary_id)
