//! Registers the built-in nodes and picks devices: the one door for front ends.
