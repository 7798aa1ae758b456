//! Simulated detectors.
