"""How much a test run shows: `make test` has each sentence in a cheap form, `make test-long` on more stages."""

import os

LONG = os.environ.get("PERDURE_TEST_STAGES") == "long"
