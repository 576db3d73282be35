"""Where the journal is kept. `perdure.ports.store` is the contract; `perdure.testing.stores` checks it."""
