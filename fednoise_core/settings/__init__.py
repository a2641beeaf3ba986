"""How a setting is declared, checked and described."""
