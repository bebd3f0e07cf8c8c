//! Journals of partial files: they say the same however they are read, and what they say stands in the part that they
//! keep, whatever is behind it. A marker's records are framed like theirs, and what it says is written back alike.

use files_proto::doubt::{MARKER_BYTES_MAX, Marker};
use files_proto::journal::{BootId, Header, Journal, JournalError, Reader, Record};

const BOOT: BootId = [1; 16];

/// A journal's bytes.
pub fn run(data: &[u8]) {
    let marker = Marker::decode(data);
    let written = marker.encode();
    assert!(written.len() <= MARKER_BYTES_MAX);
    assert_eq!(Marker::decode(&written), marker);
    for boot in [BOOT, [2; 16]] {
        let whole = read(data, boot, usize::MAX);
        assert_eq!(read(data, boot, 5), whole);
        let Ok(journal) = whole else { continue };
        let kept = usize::try_from(journal.valid_bytes).expect("within the input");
        assert_eq!(read(&data[..kept], boot, usize::MAX).as_ref(), Ok(&journal));
        let chunks = journal.header.size.div_ceil(files_proto::limits::CHUNK_BYTES);
        assert!(journal.chunks.keys().all(|index| *index < chunks));
        // It can be gone on with.
        if chunks > 0 {
            let mut more = data[..kept].to_vec();
            let added = Record::Chunk {
                index: chunks - 1,
                address: [9; 32],
            };
            for record in [Record::Boot(boot), added, Record::Synced] {
                record.encode(&mut more);
            }
            let journal = read(&more, [3; 16], usize::MAX).expect("the header is kept");
            assert_eq!(journal.chunks.get(&(chunks - 1)), Some(&[9; 32]));
            assert_eq!(journal.valid_bytes, more.len() as u64);
        }
    }
}

fn read(bytes: &[u8], boot: BootId, step: usize) -> Result<Journal, JournalError> {
    let mut reader = Reader::new(boot);
    for part in bytes.chunks(step) {
        reader.push(part);
    }
    reader.finish()
}

/// A journal of each kind of record, whole and torn.
pub fn seeds() -> Vec<Vec<u8>> {
    let header = Header {
        size: 9 << 20,
        modified_ns: -1,
        boot: BOOT,
    };
    let chunk = |index| Record::Chunk {
        index,
        address: [index as u8; 32],
    };
    let mut whole = Vec::new();
    for record in [
        Record::Header(header),
        chunk(0),
        chunk(8),
        Record::Synced,
        Record::Lost { index: 8 },
        Record::Boot([2; 16]),
        chunk(3),
        Record::Header(Header { size: 1, ..header }),
        chunk(0),
    ] {
        record.encode(&mut whole);
    }
    let torn = whole[..whole.len() - 9].to_vec();
    let marker = Marker::default().begin(BOOT, 1, 2).begin([2; 16], 3, 4).encode();
    vec![whole, torn, marker, vec![0; 64]]
}
