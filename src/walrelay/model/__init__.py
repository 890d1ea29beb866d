"""The words of the domain: frozen, printable, standard library only."""
