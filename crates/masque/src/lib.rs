//! HTTP/3 and MASQUE, sans-IO.
