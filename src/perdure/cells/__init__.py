"""The dialect of cells: keyed reducers, and what a world of them is made of. Pure: no I/O, no clock."""
