//! Batched UDP for Linux.
