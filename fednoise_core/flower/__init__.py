"""Real federations: the server and the sites are processes, and Flower transports their messages."""
