//! `gramway peer pipe`: standard input to the peer, its answer to standard output. Each direction ends by itself.

use std::io::{self, Read, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use peer::{Bytes, CloseReason, ReceiveStream, SecretKey, SendStream, StreamError, blocking};

use super::arguments::PipeArguments;
use super::connection::Connection;
use super::reports::Reports;
use super::{Confinement, PIPE, TAKEN};
use crate::exit::{Problem, sentence};
use crate::limits::{PEER_ANSWER_SILENCE_MAX, PEER_CHUNK_BYTES, PEER_GOODBYE_MAX};
use crate::output;

/// How one direction ended.
pub(super) enum End {
    /// As it should.
    Complete,
    /// The same of standard input, which the peer has.
    Sent,
    /// The stream did not go on.
    Stream(StreamError),
    /// Standard input or output did not.
    Local(Problem),
}

/// Runs the command.
pub(super) fn run(
    key: SecretKey,
    arguments: &PipeArguments,
    confinement: Confinement,
) -> Result<(), Problem> {
    let connection = Connection::open(key, &arguments.place, confinement, Reports { is_json: false })?;
    let opened = blocking::wait(connection.peer.open(0));
    let (mut to_peer, from_peer) = opened.map_err(|closed| connection.ended(&closed.0))?;
    let (ended, ends) = mpsc::channel();
    // All of standard input, and it has not been told that the answer is waited for.
    let mut is_sent = false;
    let told = ended.clone();
    spawn("input", move || {
        let end = match blocking::wait(to_peer.write_chunk(Bytes::from_static(&[PIPE]))) {
            Ok(()) => copy_input(&mut to_peer),
            Err(error) => End::Stream(error),
        };
        // Nobody waits any more where the other direction has failed.
        let _ = told.send(end);
    })?;
    spawn("output", move || {
        let _ = ended.send(copy_output(from_peer));
    })?;
    let mut left = 2;
    while left > 0 {
        // Once all is sent, most answers have ended in a moment.
        let next = match left {
            1 if is_sent => ends.recv_timeout(PEER_ANSWER_SILENCE_MAX),
            _ => ends.recv().map_err(RecvTimeoutError::from),
        };
        let end = match next {
            Ok(end) => end,
            Err(RecvTimeoutError::Timeout) => {
                output::note(
                    "all is sent; waiting for the end of the peer's answer, which is its standard input",
                );
                is_sent = false;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        left -= 1;
        match end {
            End::Sent => is_sent = true,
            End::Complete => {}
            End::Local(problem) => return Err(problem),
            End::Stream(error) => return Err(why(&connection, error)),
        }
    }
    loop {
        match blocking::wait(connection.peer.receive()) {
            Ok(received) if received.body == TAKEN => break,
            Ok(_) => {}
            Err(_) => {
                return Err(Problem::unavailable(
                    "the peer ended before it had written everything to its standard output",
                ));
            }
        }
    }
    connection.close();
    Ok(())
}

/// Starts a thread.
pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Problem> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started
        .map(drop)
        .map_err(|error| Problem::unavailable(format!("cannot start a thread: {}", sentence(&error))))
}

/// Copies standard input to the stream, and waits until the peer has it.
fn copy_input(to_peer: &mut SendStream) -> End {
    let mut stdin = io::stdin().lock();
    loop {
        match read_chunk(&mut stdin) {
            Ok(None) => break,
            Ok(Some(chunk)) => {
                if let Err(error) = blocking::wait(to_peer.write_chunk(chunk)) {
                    return End::Stream(error);
                }
            }
            Err(problem) => return End::Local(problem),
        }
    }
    match blocking::wait(to_peer.finished()) {
        Ok(()) => End::Sent,
        Err(error) => End::Stream(error),
    }
}

/// The next bytes of standard input; `None` at its end.
pub(super) fn read_chunk(input: &mut impl Read) -> Result<Option<Bytes>, Problem> {
    let mut buffer = vec![0; PEER_CHUNK_BYTES];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(count) => return Ok(Some(Bytes::copy_from_slice(&buffer[..count]))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let why = sentence(&error);
                return Err(Problem::unavailable(format!("cannot read standard input: {why}")));
            }
        }
    }
}

/// Copies the stream to standard output; a closed reader (`| head`) is not an error.
pub(super) fn copy_output(mut from_peer: ReceiveStream) -> End {
    let mut stdout = io::stdout().lock();
    loop {
        let chunk = match blocking::wait(from_peer.read_chunk(PEER_CHUNK_BYTES)) {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return End::Complete,
            Err(error) => return End::Stream(error),
        };
        match stdout.write_all(&chunk).and_then(|()| stdout.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return End::Complete,
            Err(error) => {
                let why = sentence(&error);
                return End::Local(Problem::unavailable(format!(
                    "cannot write to standard output: {why}"
                )));
            }
        }
    }
}

/// Why a stream did not go on: the connection's end says more.
fn why(connection: &Connection, error: StreamError) -> Problem {
    let closed = match error {
        StreamError::Closed => blocking::wait_for(PEER_GOODBYE_MAX, connection.peer.closed()),
        StreamError::Reset(_) => None,
    };
    match closed {
        Some(CloseReason::LocallyClosed) | None => {
            Problem::unavailable(format!("the peer does not take the pipe: {error}"))
        }
        Some(reason) => connection.ended(&reason),
    }
}
