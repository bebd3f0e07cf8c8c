//! What programs send to a client's SOCKS5 and HTTP proxies: it leads to the same in whichever pieces it comes, and no
//! call of the negotiation adds bytes without end.

use bytes::BytesMut;
use tunnel_proto::{Negotiation, NotOpened, Progress, SocksOrHttp};

use crate::input::Input;

/// Bytes that a negotiation may answer, or add to what goes to the target, besides what it was sent.
const ADDED_BYTES_MAX: usize = 2_048;

/// Where a conversation led.
struct Led {
    negotiation: SocksOrHttp,
    progress: Progress,
    /// For the target, where there is one.
    left: BytesMut,
    answer: BytesMut,
}

fn lead(bytes: &[u8], piece: usize) -> Led {
    let mut led = Led {
        negotiation: SocksOrHttp::default(),
        progress: Progress::Unfinished,
        left: BytesMut::new(),
        answer: BytesMut::new(),
    };
    let mut pieces = bytes.chunks(piece);
    for piece in pieces.by_ref() {
        led.left.extend_from_slice(piece);
        led.progress = led.negotiation.handle_received(&mut led.left, &mut led.answer);
        if led.progress != Progress::Unfinished {
            break;
        }
    }
    pieces.for_each(|piece| led.left.extend_from_slice(piece));
    led
}

/// A byte says how long pieces are, another one what comes of it; then what is sent.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (piece, end) = (1 + usize::from(input.byte()), input.byte());
    let bytes = input.0;
    let (mut whole, pieces) = (lead(bytes, usize::MAX), lead(bytes, piece));
    assert_eq!(whole.progress, pieces.progress);
    assert_eq!(whole.answer, pieces.answer);
    match &whole.progress {
        Progress::Named(target) => {
            assert_eq!(whole.left, pieces.left);
            assert_eq!(target.to_string().parse(), Ok(target.clone()));
        }
        Progress::Associate => assert_eq!(whole.left, pieces.left),
        Progress::Unfinished => {}
        // It is over.
        Progress::Refused => return,
    }
    match end % 4 {
        0 => whole.negotiation.handle_opened(&mut whole.answer),
        1 => {
            let relay = ([127, 0, 0, 1], 1_080).into();
            whole.negotiation.handle_associated(relay, &mut whole.answer);
        }
        2 => whole
            .negotiation
            .handle_failed(NotOpened::TooLate, &mut whole.answer),
        _ => {
            let refused = NotOpened::Refused {
                status: 400 + u16::from(end),
                error: None,
            };
            whole.negotiation.handle_failed(refused, &mut whole.answer);
        }
    }
    assert!(whole.answer.len() <= ADDED_BYTES_MAX);
    assert!(whole.left.len() <= bytes.len() + ADDED_BYTES_MAX);
}

/// Each request of SOCKS5 and of HTTP, older versions, and what is neither.
pub fn seeds() -> Vec<Vec<u8>> {
    let all = [
        &b"\x05\x01\x00\x05\x01\x00\x03\x0bexample.org\x01\xbbhello"[..],
        b"\x05\x02\x00\x02\x05\x01\x00\x01\xc6\x33\x64\x09\x00\x35",
        b"\x05\x01\x00\x05\x03\x00\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x09\x00\x35",
        b"\x05\x01\x02",
        b"\x05\x01\x00\x05\x02\x00\x01\x7f\0\0\x01\0\x50",
        b"\x04\x01\x00\x50\x7f\0\0\x01user\0",
        b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\nProxy-Authorization: Basic x\r\n\r\n\x16\x03",
        b"GET http://user@example.org:8080/a?b HTTP/1.1\r\nHost: other\r\nProxy-Connection: keep-alive\r\n\r\n",
        b"POST http://[2001:db8::1]/ HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
        b"GET / HTTP/1.1\r\n\r\n",
    ];
    all.map(|bytes| [b"\x02\0", bytes].concat()).to_vec()
}
