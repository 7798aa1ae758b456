//! ZeroMQ ingest straight into leases, detector protocols, and the ZeroMQ sink.
