//! Detector messages, encoded independently of the receivers.
