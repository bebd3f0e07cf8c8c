//! What the connections tell: the core's events become ours, and connections that are drained are removed.
//!
//! Silence and stateless resets leave nothing to drain. Such a connection stays until the caller has had its turn with
//! [`Event::Closed`], in which it may read what had come. The core's endpoint hears of the end after that: it gives the
//! connection's number to another one.

use std::collections::VecDeque;

use quinn_proto::{ConnectionHandle, StreamEvent};

use super::Endpoint;
use crate::connection::Connection;
use crate::event::{ConnectionKey, Event};
use crate::translate;

impl Endpoint {
    /// The next event. To be asked until `None` after every call that takes input.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                if let Event::Closed { connection, .. } = &event {
                    self.tells_end(connection.0);
                }
                return Some(event);
            }
            let index = self.unsettled.pop()?;
            self.settle(index);
        }
    }

    /// The caller is told that a connection has ended; what is drained already goes after its turn.
    fn tells_end(&mut self, index: usize) {
        let entry = self.connections.get_mut(index).and_then(Option::as_mut);
        if let Some(connection) = entry.filter(|connection| connection.closed) {
            connection.end_is_told = true;
            if !std::mem::replace(&mut connection.unsettled, true) {
                self.unsettled.push(index);
            }
        }
    }

    fn settle(&mut self, index: usize) {
        let key = ConnectionKey(index);
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        connection.unsettled = false;
        while let Some(event) = connection.proto.poll_endpoint_events() {
            if event.is_drained() {
                connection.has_drained = true;
                continue;
            }
            if let Some(event) = self.proto.handle_event(ConnectionHandle(index), event) {
                connection.proto.handle_event(event);
            }
        }
        while let Some(event) = connection.proto.poll() {
            match event {
                _ if connection.closed => {}
                quinn_proto::Event::HandshakeDataReady
                | quinn_proto::Event::DatagramReceived
                | quinn_proto::Event::DatagramsUnblocked => {}
                quinn_proto::Event::Connected => {
                    connection.deadline = connection.token_deadline;
                    connection.is_established = true;
                    if self.peers.is_some() {
                        connection.begin_watch();
                    }
                    let is_redirected = connection.peer.is_genuine_site();
                    self.events.push_back(match is_redirected {
                        true => Event::Redirected { connection: key },
                        false => Event::Connected { connection: key },
                    });
                }
                quinn_proto::Event::ConnectionLost { reason } => {
                    connection.closed = true;
                    self.events.extend(dropped(connection, key));
                    self.events.push_back(Event::Closed {
                        connection: key,
                        reason: connection.close_reason(&reason),
                        counters: connection.counters(),
                    });
                }
                quinn_proto::Event::Stream(event) => {
                    stream_event(connection, key, event, &mut self.events);
                }
            }
        }
        self.closing -= usize::from(connection.take_answer());
        let dropped = dropped(connection, key);
        if !connection.closed {
            self.events.extend(dropped);
            let remote = connection.proto.remote_address();
            if std::mem::replace(&mut connection.remote, remote) != remote {
                self.events.push_back(Event::RemoteChanged {
                    connection: key,
                    remote,
                });
            }
            self.events.extend(connection.watch_path_mtu());
        }
        let is_drained = connection.has_drained || connection.proto.is_drained();
        match (is_drained, connection.end_is_told) {
            (false, _) => self.arm(index),
            (true, false) => {}
            (true, true) => self.drain(index),
        }
    }

    pub(super) fn remove(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        if let Some(timer) = connection.timer {
            self.timers.remove(&(timer, index));
        }
        if let Some(owner) = connection.owner {
            self.ready.leave(owner);
        }
        if let Some(place) = connection.place {
            self.admission.end(place);
            self.strangers_bytes -= connection.charge.bytes();
        }
        self.standing_readers -= connection.standing_readers;
        self.closing -= usize::from(connection.closing.is_some());
        self.ended += connection.counters();
        self.open -= 1;
    }
}

/// The datagrams that the core has given up since the last question, where there are some.
pub(super) fn dropped(connection: &mut Connection, key: ConnectionKey) -> Option<Event> {
    let count = connection.take_dropped();
    (count > 0).then_some(Event::DatagramsDropped {
        connection: key,
        count,
    })
}

fn stream_event(
    connection: &mut Connection,
    key: ConnectionKey,
    event: StreamEvent,
    events: &mut VecDeque<Event>,
) {
    let event = match event {
        StreamEvent::Opened { dir } => {
            while let Some(stream) = connection.proto.streams().accept(dir) {
                events.push_back(Event::StreamOpened {
                    connection: key,
                    stream: translate::stream(stream),
                });
            }
            connection.grant_streams(dir);
            return;
        }
        StreamEvent::Readable { id } => Event::StreamReadable {
            connection: key,
            stream: translate::stream(id),
        },
        StreamEvent::Writable { id } => Event::StreamWritable {
            connection: key,
            stream: translate::stream(id),
        },
        StreamEvent::Finished { id } => Event::StreamFinished {
            connection: key,
            stream: translate::stream(id),
        },
        StreamEvent::Stopped { id, error_code } => Event::StreamStopped {
            connection: key,
            stream: translate::stream(id),
            code: error_code.into_inner(),
        },
        StreamEvent::Available { dir } => Event::StreamsAvailable {
            connection: key,
            direction: translate::direction(dir),
        },
    };
    events.push_back(event);
}
