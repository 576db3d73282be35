"""Who may use a server: keys, grants, login links. One built-in instance, `perdure.access/main`, keeps them."""
