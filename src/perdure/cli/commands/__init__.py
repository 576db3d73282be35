"""One module for each verb; each has one name, `command`."""
