"""Human tasks: a piece of work for a person, asked for by any workflow. A task is an instance of `perdure.task`."""
