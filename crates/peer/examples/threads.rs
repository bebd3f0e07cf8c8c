//! No executor: lines over a stream by `std::io`, a thread for each end.
//!
//! ```text
//! cargo run -p peer --example threads
//! ```

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::thread;

use peer::blocking::{Reader, Writer, wait};
use peer::{Endpoint, Peer, SecretKey};

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let server = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
    let client = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
    let to_server = wait(client.connect(server.id(), &[server.local_addr()]))?;
    let from_client = wait(server.accept()).ok_or("the endpoint was closed")?;
    let serving = thread::spawn(move || serve(&from_client));

    let (question, answer) = wait(to_server.open(0))?;
    let mut question = Writer::new(question);
    for word in ["one", "two", "three"] {
        writeln!(question, "{word}")?;
    }
    question.finish()?;
    for line in BufReader::new(Reader::new(answer)).lines() {
        println!("{}", line?);
    }
    to_server.close(0, "done");
    serving.join().map_err(|_| "the server's thread failed")?
}

/// Answers each line of one stream.
fn serve(peer: &Peer) -> Result<(), Failed> {
    let (answer, question) = wait(peer.accept())?;
    let mut answer = Writer::new(answer);
    for line in BufReader::new(Reader::new(question)).lines() {
        writeln!(answer, "heard {}", line?)?;
    }
    // The client closes once it has read everything.
    answer.finish()?;
    wait(peer.closed());
    Ok(())
}
