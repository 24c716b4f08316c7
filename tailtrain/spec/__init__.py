"""The specification's types, Q16.16 arithmetic, and JSON exactly as Lean writes it."""
