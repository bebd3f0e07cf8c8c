//! State that is made by its first use. Most peers of a large endpoint rest: what they have not used takes a pointer.

/// A value that may not have been used yet.
#[derive(Debug)]
pub(crate) struct Lazy<T>(Option<Box<T>>);

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Lazy<T> {
    /// `None`: it is as it was made.
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// The same for what changes nothing about an unused one.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// For its first use, and every later one.
    pub(crate) fn used(&mut self, make: impl FnOnce() -> T) -> &mut T {
        self.0.get_or_insert_with(|| Box::new(make()))
    }
}
