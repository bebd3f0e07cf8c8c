//! All end-to-end tests, one module per subject.

mod house;
