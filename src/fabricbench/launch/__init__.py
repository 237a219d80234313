"""How ranks start: one class per launcher."""
