"""How a request says who asks: keys, sessions, the host's own answer; and which hosts and origins are ours."""
