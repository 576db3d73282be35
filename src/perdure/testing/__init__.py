"""For your tests and ours: conformance suites, simulation, a clock you can set."""
