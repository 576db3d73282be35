"""Bulk work: one verb on many instances. Each is an instance of `perdure.bulk`, recorded and resumed like any other."""
