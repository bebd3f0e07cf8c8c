//! `gramway peer ping`: messages that go once and come back, so that what is lost shows. A connection that ends is made
//! again, and pings meanwhile are lost, as those of any path are.

use std::time::{Duration, Instant};

use peer::{CloseReason, Delivery, PeerPath, SecretKey, blocking};
use serde_json::{Value, json};

use super::arguments::PingArguments;
use super::connection::Connection;
use super::reports::{Reports, path_fields};
use super::stats::{self, milliseconds};
use super::{ANSWER, Confinement, PING};
use crate::exit::{Code, Problem};
use crate::limits::PEER_PING_WAIT;

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
        let [min, average, max] = [*min, average, *max].map(shown);
        format!("{counts}; round trip min/avg/max {min}/{average}/{max} ms")
    }

    fn as_json(&self) -> Value {
        let answered = self.round_trips.len();
        let average = || self.round_trips.iter().sum::<Duration>() / answered as u32;
        json!({
            "sent": self.open.len(),
            "answered": answered,
            "round_trip_min_ms": self.round_trips.iter().min().copied().map(milliseconds),
            "round_trip_average_ms": (answered > 0).then(average).map(milliseconds),
            "round_trip_max_ms": self.round_trips.iter().max().copied().map(milliseconds),
        })
    }
}

/// A time in milliseconds, for people.
fn shown(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}

/// Runs the command.
pub(super) fn run(
    key: SecretKey,
    arguments: &PingArguments,
    confinement: Confinement,
) -> Result<(), Problem> {
    let reports = Reports {
        is_json: arguments.json,
    };
    let mut connection = Connection::open(key, &arguments.place, confinement, reports)?;
    let Some(mut path) = tell_path(&connection, reports)? else {
        return Err(connection.ended(&why_ended(&connection)));
    };
    let interval = Duration::from_millis(arguments.interval.into());
    let (mut tally, mut is_connected) = (Tally::default(), true);
    for remaining in (0..arguments.count).rev() {
        let (began, is_last) = (Instant::now(), remaining == 0);
        let until = began + if is_last { PEER_PING_WAIT } else { interval };
        let body = [PING, &tally.leaves(began).to_be_bytes()].concat();
        // What becomes of it, the answer tells; what the queue does not take is lost, and what no connection takes.
        let _ = connection.peer.try_send(body, Delivery::unordered().unreliable());
        loop {
            if !is_connected {
                // Nothing answers any more what has left, and the last one has left.
                if is_last || !connection.again(until)? {
                    break;
                }
                let Some(taken) = tell_path(&connection, reports)? else {
                    continue;
                };
                (path, is_connected) = (taken, true);
            }
            let state = (&mut path, reports);
            let Some(reason) = take_answers(&connection, &mut tally, state, until, is_last)? else {
                break;
            };
            tell_end(&connection, &tally, &reason, is_last, reports)?;
            is_connected = false;
        }
    }
    let mut fields = tally.as_json();
    fields["path_stats"] = stats_of(&connection);
    reports.data("summary", fields, &tally.summary())?;
    let nothing = tally.round_trips.is_empty();
    connection.close();
    match nothing {
        true => Err(Problem::unavailable("the peer connected and answered no ping")),
        false => Ok(()),
    }
}

/// Takes answers until then, or until all have come where no ping follows; what ended the connection, where it ended.
fn take_answers(
    connection: &Connection,
    tally: &mut Tally,
    (path, reports): (&mut PeerPath, Reports),
    until: Instant,
    is_last: bool,
) -> Result<Option<CloseReason>, Problem> {
    while !(is_last && tally.is_complete()) {
        let left = until.saturating_duration_since(Instant::now());
        let received = match blocking::wait_for(left, connection.peer.receive()) {
            None => return Ok(None),
            Some(Ok(received)) => received,
            Some(Err(closed)) => return Ok(Some(closed.0)),
        };
        if let Some((number, round_trip)) = tally.answered(&received.body, Instant::now()) {
            tell_move(connection, path, reports)?;
            let address = connection.address(*path);
            let mut fields = path_fields(*path, connection.carrier());
            fields["number"] = number.into();
            fields["round_trip_ms"] = milliseconds(round_trip).into();
            let time = shown(round_trip);
            reports.data(
                "answer",
                fields,
                &format!("answer {number} from {address}: {time} ms"),
            )?;
        }
    }
    Ok(None)
}

fn why_ended(connection: &Connection) -> CloseReason {
    blocking::wait(connection.peer.closed())
}

/// The connection has ended. It is made again where the peer has answered before and does not refuse this machine, and
/// a ping follows.
fn tell_end(
    connection: &Connection,
    tally: &Tally,
    reason: &CloseReason,
    is_last: bool,
    reports: Reports,
) -> Result<(), Problem> {
    let problem = connection.ended(reason);
    if tally.round_trips.is_empty() || matches!(problem.code(), Code::Permission) {
        return Err(problem);
    }
    let problem = problem.to_string();
    let text = match is_last {
        true => problem.clone(),
        false => format!("{problem}; connecting again"),
    };
    reports.data("ended", json!({ "text": problem }), &text)
}

/// The connection has taken another path since it was last looked at.
fn tell_move(connection: &Connection, path: &mut PeerPath, reports: Reports) -> Result<(), Problem> {
    let Some(taken) = connection.peer.path().filter(|taken| taken != path) else {
        return Ok(());
    };
    *path = taken;
    let address = connection.address(taken);
    let after = connection.began.elapsed();
    let mut fields = path_fields(taken, connection.carrier());
    fields["after_ms"] = milliseconds(after).into();
    let after = after.as_secs_f64();
    let text = format!(
        "moved to {address}, {}, {after:.1} s after the start",
        connection.how(taken)
    );
    reports.data("moved", fields, &text)
}

/// All that is known of the path; null once the connection has ended.
fn stats_of(connection: &Connection) -> Value {
    let stats = connection.peer.path_stats();
    stats.as_ref().map_or(Value::Null, stats::as_json)
}

/// Tells where the peer was reached; no path where the connection has ended since.
fn tell_path(connection: &Connection, reports: Reports) -> Result<Option<PeerPath>, Problem> {
    let (Some(stats), Some(path)) = (connection.peer.path_stats(), connection.peer.path()) else {
        return Ok(None);
    };
    let id = connection.peer.id();
    let address = connection.address(path);
    let took = shown(connection.took);
    let mtu = stats.path_mtu;
    let mut text = format!(
        "{id} at {address}, {}, after {took} ms; packets of {mtu} bytes",
        connection.how(path)
    );
    let (tried, attempts) = &connection.tried;
    if let [_, _, ..] = tried[..] {
        text += &format!("\ntried: {}", tried.join("; "));
    }
    let mut fields = path_fields(path, connection.carrier());
    fields["peer"] = id.to_string().into();
    fields["after_ms"] = milliseconds(connection.took).into();
    fields["attempts"] = attempts.clone();
    fields["path_stats"] = stats::as_json(&stats);
    reports.data("connected", fields, &text)?;
    Ok(Some(path))
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
        assert_eq!(tally.as_json()["round_trip_average_ms"], 20.0);
        assert_eq!(Tally::default().as_json()["round_trip_min_ms"], Value::Null);
    }
}
