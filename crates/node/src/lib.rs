//! All that a node author imports.
