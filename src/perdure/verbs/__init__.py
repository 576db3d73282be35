"""What people may do and ask, in one table: each face (command line, server) is made from it."""
