"""What the tests of faults share: the way to tell how long a recovery has taken."""

from collections.abc import Callable

import pytest


@pytest.fixture
def recovered(request) -> Callable[[str], None]:
    """Called with how long it has taken, for docs/reliability.md."""
    return lambda told: request.node.user_properties.append(("recovered", told))
