//! Codes of file transfers as they are typed, and the exchange behind them: what is read as a code is shown as one that
//! is read alike, and no bytes prove that their sender knows the words.

use files_proto::code::{Code, ExchangeError, Guest, Host, Parties, Progress};

/// The input is a code's text, and the other end of both roles of the exchange.
pub fn run(data: &[u8]) {
    if let Ok(text) = str::from_utf8(data)
        && let Ok(code) = text.parse::<Code>()
    {
        assert_eq!(code.to_string().parse(), Ok(code.clone()));
        assert!(!format!("{code:?}").contains(&code.to_string()));
    }
    let parties = Parties {
        host: [1; 32],
        guest: [2; 32],
        binding: [3; 32],
    };
    let code: Code = "7341-maple-otter".parse().expect("a code");
    let mut host = Host::new(&code, parties, &[4; 32]);
    check(data, |part| host.handle_bytes(part));
    let mut guest = Guest::new(&code, parties, &[5; 32]);
    check(data, |part| guest.handle_bytes(part));
}

fn check(data: &[u8], mut take: impl FnMut(&[u8]) -> Result<Progress, ExchangeError>) {
    for part in data.chunks(7) {
        match take(part) {
            Ok(progress) => assert_eq!(progress, Progress::Waiting),
            Err(_) => return,
        }
    }
}

/// Codes, and frames of the exchange.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "7341-maple-otter",
        "1000 zone acid@files.example.org",
        "99999-MAPLE-Otter@[2001:db8::1]:4433",
        "7341-mapel-otter",
    ];
    let mut seeds: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    let mut start = vec![1, 33, 0x41];
    start.extend([0x58; 32]);
    start.extend([3, 32]);
    start.extend([7; 32]);
    seeds.push(start.clone());
    start[0] = 2;
    seeds.push([&start[..], &[4, 0]].concat());
    seeds
}
