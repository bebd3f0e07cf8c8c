//! Connections side by side, each on a thread of its own, so that one that says nothing holds up no other.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::Stream;
use crate::limits::HTTP_ACCEPT_PAUSE;

/// A connection that counts as open as long as this lives.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Has `converse` answer connections from `accept` for ever, at most `limit` at a time; others wait. Their threads have
/// this name. Whoever went away or does not read gets no answer.
pub(crate) fn serve_each<S: Stream + Send + 'static>(
    name: &str,
    limit: usize,
    mut accept: impl FnMut() -> io::Result<S>,
    converse: impl Fn(S) -> io::Result<()> + Clone + Send + 'static,
) -> ! {
    let count = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok(stream) = accept() else {
            // Such as without a free file descriptor.
            thread::sleep(HTTP_ACCEPT_PAUSE);
            continue;
        };
        while count.load(Ordering::Relaxed) >= limit {
            thread::sleep(HTTP_ACCEPT_PAUSE);
        }
        count.fetch_add(1, Ordering::Relaxed);
        let open = Open(Arc::clone(&count));
        let converse = converse.clone();
        let work = move || {
            let _open = open;
            let _ = converse(stream);
        };
        // Without a thread the connection ends, and counts no more.
        let _ = thread::Builder::new().name(name.to_owned()).spawn(work);
    }
}
