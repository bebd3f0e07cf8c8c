//! `gramway peer ping`: messages that go once and come back, so that what is lost shows.

use std::time::{Duration, Instant};

use peer::{Delivery, PeerPath, SecretKey, SendError, blocking};

use super::arguments::PingArguments;
use super::connection::Connection;
use super::{ANSWER, Confinement, PING};
use crate::exit::Problem;
use crate::limits::PEER_PING_WAIT;
use crate::output;

/// What has come back.
#[derive(Default)]
struct Tally {
    /// When each left, while its answer is missing.
    open: Vec<Option<Instant>>,
    round_trips: Vec<Duration>,
}

impl Tally {
    /// The number of the next one, which leaves now.
    fn leaves(&mut self, now: Instant) -> u64 {
        self.open.push(Some(now));
        self.open.len() as u64
    }

    /// An answer: its number and its round trip, the first time that it comes.
    fn answered(&mut self, body: &[u8], now: Instant) -> Option<(u64, Duration)> {
        let number = body.strip_prefix(ANSWER)?.try_into().ok()?;
        let number = u64::from_be_bytes(number);
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        let round_trip = now.saturating_duration_since(self.open.get_mut(index)?.take()?);
        self.round_trips.push(round_trip);
        Some((number, round_trip))
    }

    fn is_complete(&self) -> bool {
        self.round_trips.len() == self.open.len()
    }

    fn summary(&self) -> String {
        let (sent, answered) = (self.open.len(), self.round_trips.len());
        let lost = 100.0 * (sent - answered) as f64 / sent.max(1) as f64;
        let counts = format!("{sent} sent, {answered} answered, {lost:.0} % lost");
        let (Some(min), Some(max)) = (self.round_trips.iter().min(), self.round_trips.iter().max()) else {
            return counts;
        };
        let average = self.round_trips.iter().sum::<Duration>() / answered as u32;
        let [min, average, max] = [*min, average, *max].map(milliseconds);
        format!("{counts}; round trip min/avg/max {min}/{average}/{max} ms")
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}

/// Runs the command.
pub(super) fn run(
    key: SecretKey,
    arguments: &PingArguments,
    confinement: Confinement,
) -> Result<(), Problem> {
    let connection = Connection::open(key, &arguments.place, confinement)?;
    let mut path = tell_path(&connection)?;
    let interval = Duration::from_millis(arguments.interval.into());
    let mut tally = Tally::default();
    for remaining in (0..arguments.count).rev() {
        let began = Instant::now();
        let number = tally.leaves(began);
        let body = [PING, &number.to_be_bytes()].concat();
        match connection.peer.try_send(body, Delivery::unordered().unreliable()) {
            // What becomes of it, the answer tells; what the queue does not take is lost.
            Ok(_) | Err(SendError::Full) => {}
            Err(_) => return Err(why_ended(&connection)),
        }
        let until = began + if remaining == 0 { PEER_PING_WAIT } else { interval };
        take_answers(&connection, &mut tally, &mut path, until, remaining == 0)?;
    }
    output::data(&tally.summary())?;
    let nothing = tally.round_trips.is_empty();
    connection.close();
    match nothing {
        true => Err(Problem::unavailable("the peer connected and answered no ping")),
        false => Ok(()),
    }
}

/// Takes answers until then, or until all have come where no ping follows.
fn take_answers(
    connection: &Connection,
    tally: &mut Tally,
    path: &mut PeerPath,
    until: Instant,
    is_last: bool,
) -> Result<(), Problem> {
    while !(is_last && tally.is_complete()) {
        let left = until.saturating_duration_since(Instant::now());
        let received = match blocking::wait_for(left, connection.peer.receive()) {
            None => return Ok(()),
            Some(Ok(received)) => received,
            Some(Err(closed)) => return Err(connection.ended(&closed.0)),
        };
        if let Some((number, round_trip)) = tally.answered(&received.body, Instant::now()) {
            tell_move(connection, path)?;
            let address = connection.address(*path);
            let time = milliseconds(round_trip);
            output::data(&format!("answer {number} from {address}: {time} ms"))?;
        }
    }
    Ok(())
}

fn why_ended(connection: &Connection) -> Problem {
    connection.ended(&blocking::wait(connection.peer.closed()))
}

/// The connection has taken another path since it was last looked at.
fn tell_move(connection: &Connection, path: &mut PeerPath) -> Result<(), Problem> {
    let Some(taken) = connection.peer.path().filter(|taken| taken != path) else {
        return Ok(());
    };
    *path = taken;
    let address = connection.address(taken);
    let after = connection.began.elapsed().as_secs_f64();
    output::data(&format!(
        "moved to {address}, {}, {after:.1} s after the start",
        how(taken)
    ))
}

fn how(path: PeerPath) -> &'static str {
    match path {
        PeerPath::Direct(_) => "directly",
        PeerPath::Relayed(_) => "not directly",
    }
}

fn tell_path(connection: &Connection) -> Result<PeerPath, Problem> {
    let (Some(stats), Some(path)) = (connection.peer.path_stats(), connection.peer.path()) else {
        return Err(why_ended(connection));
    };
    let id = connection.peer.id();
    let address = connection.address(path);
    let took = milliseconds(connection.took);
    let mtu = stats.path_mtu;
    output::data(&format!(
        "{id} at {address}, {}, after {took} ms; packets of {mtu} bytes",
        how(path)
    ))?;
    if let [_, _, ..] = connection.candidates[..] {
        let tried: Vec<String> = connection.candidates.iter().map(ToString::to_string).collect();
        output::data(&format!("tried: {}", tried.join(", ")))?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(number: u64) -> Vec<u8> {
        [ANSWER, &number.to_be_bytes()].concat()
    }

    #[test]
    fn an_answer_counts_once_and_what_was_not_asked_never() {
        let now = Instant::now();
        let mut tally = Tally::default();
        assert_eq!((tally.leaves(now), tally.leaves(now)), (1, 2));
        let later = now + Duration::from_millis(20);
        assert_eq!(
            tally.answered(&answer(2), later),
            Some((2, Duration::from_millis(20)))
        );
        for body in [
            answer(2),
            answer(0),
            answer(3),
            b"pong".to_vec(),
            b"hello".to_vec(),
        ] {
            assert_eq!(tally.answered(&body, later), None, "{body:?}");
        }
        assert!(!tally.is_complete());
        assert_eq!(
            tally.summary(),
            "2 sent, 1 answered, 50 % lost; round trip min/avg/max 20.000/20.000/20.000 ms"
        );
    }
}
