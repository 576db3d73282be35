"""One module for each verb that begins with `processes`."""
