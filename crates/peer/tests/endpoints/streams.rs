//! Streams: those of tokio and of the standard library, their windows, and how they end.

use std::io::{Read, Write};
use std::time::Duration;

use peer::blocking::{Reader, Writer, wait, wait_for};
use peer::{Bytes, CloseReason, Delivery, Outcome, SendError, StreamError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{LIMIT, bind, blocking_pair, builder, in_time, meet, pair};

#[tokio::test]
async fn streams_are_tokios() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        let data: Vec<u8> = (0..3_000_000_u32).map(|index| (index >> 3) as u8).collect();
        let (mut sending, mut receiving) = to_two.open(0).await.unwrap();
        let echo = tokio::spawn(async move {
            let (mut answer, mut question) = to_one.accept().await.unwrap();
            tokio::io::copy(&mut question, &mut answer).await.unwrap();
            answer.finished().await.unwrap();
        });
        let writer = tokio::spawn({
            let data = data.clone();
            async move {
                sending.write_all(&data).await.unwrap();
                sending.shutdown().await.unwrap();
            }
        });
        let mut back = Vec::new();
        receiving.read_to_end(&mut back).await.unwrap();
        assert!(back == data, "the bytes changed");
        writer.await.unwrap();
        echo.await.unwrap();
    })
    .await;
}

#[test]
fn blocking_streams_are_stds_and_a_read_that_takes_too_long_loses_nothing() {
    let (_one, _two, to_two, to_one) = blocking_pair();
    let data: Vec<u8> = (0..3_000_000_u32).map(|index| (index >> 3) as u8).collect();
    let mut writer = Writer::new(wait(to_two.open_one_way(0)).unwrap());
    writer.write_all(&data[..3]).unwrap();
    let stream = wait_for(LIMIT, to_one.accept_one_way()).unwrap().unwrap();
    let mut reader = Reader::new(stream).with_limit(Duration::from_millis(1));
    let mut received = Vec::new();
    let error = loop {
        let mut part = [0; 2];
        match reader.read(&mut part) {
            Ok(count) => received.extend_from_slice(&part[..count]),
            Err(error) if received.len() == 3 => break error,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::TimedOut),
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    let rest = data[3..].to_vec();
    let writing = std::thread::spawn(move || {
        writer.write_all(&rest).unwrap();
        writer.finish()
    });
    let mut reader = Reader::new(reader.into_inner()).with_limit(LIMIT);
    reader.read_to_end(&mut received).unwrap();
    assert!(received == data, "the bytes changed");
    writing.join().unwrap().unwrap();

    let mut cut = Writer::new(wait(to_two.open_one_way(0)).unwrap());
    cut.write_all(b"abc").unwrap();
    let stream = wait_for(LIMIT, to_one.accept_one_way()).unwrap().unwrap();
    let mut reader = Reader::new(stream).with_limit(LIMIT);
    reader.read_exact(&mut [0; 3]).unwrap();
    cut.stream().reset(5);
    let error = reader.read_to_end(&mut received).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_receiver_takes_more_of_a_stream_that_nobody_reads_where_its_window_is_larger() {
    let [one, two] = [u32::MAX, 40 << 20].map(|bytes| bind(builder().stream_window_bytes(bytes)));
    let (to_two, _to_one) = wait_for(LIMIT, meet(&one, &two)).unwrap();
    let mut sending = wait(to_two.open_one_way(0)).unwrap();
    // Nobody reads it, and the usual window is 16 MiB.
    let written = wait_for(LIMIT, sending.write_chunk(vec![7; 39 << 20].into()));
    assert_eq!(written, Some(Ok(())));
}

#[tokio::test]
async fn a_stream_that_was_finished_before_the_connection_was_closed_is_read_to_its_end() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        let data = vec![5; 200_000];
        let mut sending = to_two.open_one_way(0).await.unwrap();
        sending.write_chunk(data.clone().into()).await.unwrap();
        sending.finished().await.unwrap();
        to_two.close(0, "all is said");
        to_one.closed().await;
        let mut receiving = to_one.accept_one_way().await.unwrap();
        let mut received = Vec::new();
        receiving.read_to_end(&mut received).await.unwrap();
        assert!(received == data, "{} bytes", received.len());
        assert!(to_one.accept_one_way().await.is_err());
    })
    .await;
}

#[tokio::test]
async fn resets_stops_and_ends_are_told() {
    in_time(async {
        let (_one, two, to_two, to_one) = pair().await;
        let mut sending = to_two.open_one_way(0).await.unwrap();
        sending.write_chunk(Bytes::from_static(b"abc")).await.unwrap();
        let mut receiving = to_one.accept_one_way().await.unwrap();
        assert_eq!(receiving.read_chunk(10).await.unwrap().unwrap(), "abc");
        sending.reset(5);
        assert_eq!(receiving.read_chunk(10).await, Err(StreamError::Reset(5)));

        let mut second = to_two.open_one_way(0).await.unwrap();
        second.write_chunk(Bytes::from_static(b"abc")).await.unwrap();
        to_one.accept_one_way().await.unwrap().stop(6);
        // A stream that ends before the stop arrives has ended well.
        while second.write_chunk(Bytes::from_static(b"abc")).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert_eq!(second.finished().await, Err(StreamError::Reset(6)));

        two.close(9, "done");
        let CloseReason::ApplicationClosed { code, reason } = to_two.closed().await else {
            panic!("closed in another way");
        };
        assert_eq!((code, reason.as_str()), (9, "done"));
        let late = to_two.send("late", Delivery::unordered()).await;
        assert_eq!(late.err(), Some(SendError::NotConnected));
        assert!(two.accept().await.is_none());
        assert!(to_two.receive().await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_writer_learns_that_the_peer_wants_no_more_or_has_everything() {
    in_time(async {
        let (_one, two, to_two, to_one) = pair().await;
        let mut stopped = to_two.open_one_way(0).await.unwrap();
        stopped.write_chunk(Bytes::from_static(b"abc")).await.unwrap();
        let mut receiving = to_one.accept_one_way().await.unwrap();
        receiving.stop(6);
        assert_eq!(stopped.stopped().await, Ok(Some(6)));
        assert_eq!(stopped.stopped().await, Ok(Some(6)));

        let mut finished = to_two.open_one_way(0).await.unwrap();
        finished.write_chunk(Bytes::from_static(b"abc")).await.unwrap();
        finished.finish();
        assert_eq!(finished.stopped().await, Ok(None));

        let mut reset = to_two.open_one_way(0).await.unwrap();
        reset.reset(5);
        assert_eq!(reset.stopped().await, Err(StreamError::Closed));

        let lost = to_two.open_one_way(0).await.unwrap();
        let shown = format!("{lost:?}");
        assert!(shown.contains(&two.id().to_string()), "{shown}");
        to_one.close(0, "");
        assert_eq!(lost.stopped().await, Err(StreamError::Closed));
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_was_cut_short_is_never_read_to_an_end() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        let mut streams = Vec::new();
        for _ in 0..2 {
            let mut sending = to_two.open_one_way(0).await.unwrap();
            sending.write_chunk(Bytes::from_static(b"abc")).await.unwrap();
            let mut receiving = to_one.accept_one_way().await.unwrap();
            assert_eq!(receiving.read_chunk(10).await.unwrap().unwrap(), "abc");
            streams.push((sending, receiving));
        }
        let (mut lost_sending, mut lost) = streams.pop().unwrap();
        let (mut reset_sending, mut reset) = streams.pop().unwrap();
        reset_sending.reset(5);
        for _ in 0..3 {
            assert_eq!(reset.read_chunk(10).await, Err(StreamError::Reset(5)));
            let error = reset.read_to_end(&mut Vec::new()).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        to_two.close(0, "");
        for _ in 0..3 {
            assert_eq!(lost.read_chunk(10).await, Err(StreamError::Closed));
            assert!(lost.read_to_end(&mut Vec::new()).await.is_err());
        }
        assert!(lost_sending.write_all(b"more").await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_is_stopped_before_it_is_accepted_tells_so() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        let (mut sending, mut receiving) = to_two.open(0).await.unwrap();
        sending.write_chunk(Bytes::from_static(b"abc")).await.unwrap();
        receiving.stop(7);
        let ticket = to_two.send("stopped", Delivery::unordered()).await.unwrap();
        assert_eq!(ticket.await, Outcome::Acked);
        let (mut answer, _question) = to_one.accept().await.unwrap();
        assert_eq!(answer.finished().await, Err(StreamError::Reset(7)));
    })
    .await;
}

#[test]
fn a_write_that_was_given_up_goes_on_with_what_is_left() {
    let (_one, _two, to_two, to_one) = blocking_pair();
    let data: Vec<u8> = (0..10 << 20_u32).flat_map(u32::to_be_bytes).collect();
    let mut rest = Bytes::from(data.clone());
    let mut sending = wait(to_two.open_one_way(0)).unwrap();
    // The window is less than that.
    assert!(wait_for(Duration::ZERO, sending.write_from(&mut rest)).is_none());
    assert!(!rest.is_empty() && rest.len() < data.len());
    let reading = std::thread::spawn(move || {
        let (mut receiving, mut received) = (wait(to_one.accept_one_way()).unwrap(), Vec::new());
        wait(receiving.read_to_end(&mut received)).unwrap();
        received
    });
    while wait_for(Duration::from_millis(1), sending.write_from(&mut rest)).is_none() {}
    assert!(rest.is_empty());
    sending.finish();
    assert!(reading.join().unwrap() == data, "bytes are lost, or came twice");
}
