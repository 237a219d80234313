"""Messages by size: what a fabric is."""
