//! What only a client's engine does.

mod requests;
