//! Specifications of the computations: shapes, units, tolerances.
