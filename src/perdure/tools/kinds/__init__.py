"""The tools that perdure brings: one file each."""
