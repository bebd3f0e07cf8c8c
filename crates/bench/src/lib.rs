//! Load generators, sinks and benchmark matrices.
