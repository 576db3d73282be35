"""`python -m perdure` is the command line `perdure`."""

from perdure.cli import main

if __name__ == "__main__":  # processes for steps import this module under another name
    main()
