//! Datagrams on a byte stream of irpc-uds: the same ones come out however the stream is cut, up to the first length
//! that none may have.

/// One byte of piece length, then the stream.
pub fn run(data: &[u8]) {
    irpc_uds::fuzzing::frame(data);
}

/// Datagrams of all sizes, and lengths that are refused.
pub fn seeds() -> Vec<Vec<u8>> {
    let framed = |len: u16| [&len.to_be_bytes()[..], &vec![len as u8; usize::from(len)]].concat();
    let mut all = vec![
        framed(1),
        framed(300),
        framed(2_000),
        framed(0),
        framed(2_001),
        [framed(1), framed(2), framed(3), framed(0), framed(4)].concat(),
        (1..60).flat_map(framed).collect(),
        framed(500)[..400].to_vec(),
    ];
    for (seed, piece) in all.iter_mut().zip([1, 7, 255, 1, 2, 3, 31, 100]) {
        seed.insert(0, piece);
    }
    all
}
