"""A method in a real federation: the server and the sites are processes, and Flower carries their messages."""
