"""The verbs over HTTP: a module a group. Each handler is given a `Calling` and parameters, and answers a document."""
