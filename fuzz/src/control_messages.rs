//! Control messages of a received datagram: what is understood of any bytes is the same after it was written and read
//! again, and lengths that lie end the walk.

/// The bytes of the kernel's control messages.
pub fn run(data: &[u8]) {
    packet_io::fuzzing::control_messages(data);
}

/// A `cmsghdr` with its data, padded to eight bytes.
fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
    let mut bytes = (16 + data.len()).to_ne_bytes().to_vec();
    bytes.extend(level.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// All that the kernel sends beside a datagram, together, and with lengths that lie.
pub fn seeds() -> Vec<Vec<u8>> {
    let known = [
        message(17, 104, &1200_i32.to_ne_bytes()),
        message(0, 1, &[3]),
        message(41, 67, &3_i32.to_ne_bytes()),
        message(0, 8, &[1, 0, 0, 0, 192, 0, 2, 1, 192, 0, 2, 1]),
        message(41, 50, &[9; 20]),
        message(0, 20, &[2, 0, 0, 53, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        message(41, 74, &[7; 28]),
        message(1, 40, &7_u32.to_ne_bytes()),
        message(1, 99, &[1; 5]),
    ];
    let mut cut = known.concat();
    cut[0] = 255;
    let mut all = known.to_vec();
    all.extend([known.concat(), cut, known.concat()[..60].to_vec()]);
    all
}
