//! One shard of QUIC, sans-IO.
