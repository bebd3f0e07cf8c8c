//! Certificates that a genuine site sends compressed (RFC 8879), because browsers offer Brotli.

use std::io::Cursor;

use rustls::CertificateCompressionAlgorithm;
use rustls::compress::{CertDecompressor, DecompressionFailed};

/// Brotli, receiving. What comes out is bounded by the room that rustls gives, 64 KiB at most.
#[derive(Debug)]
pub(super) struct Brotli;

impl CertDecompressor for Brotli {
    fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
        let bytes = output.len() as u64;
        let mut output = Cursor::new(output);
        brotli_decompressor::BrotliDecompress(&mut Cursor::new(input), &mut output)
            .map_err(|_| DecompressionFailed)?;
        (output.position() == bytes)
            .then_some(())
            .ok_or(DecompressionFailed)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Brotli
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7932 section 9: a window of 16 bits, a meta-block of 8 bytes that is not compressed, and an empty last one.
    const STORED: [u8; 12] = [
        0x70, 0x00, 0x10, b'g', b'r', b'a', b'm', b'w', b'a', b'y', b'!', 0x03,
    ];

    #[test]
    fn what_was_compressed_fits_exactly_or_not_at_all() {
        let mut output = [0; 8];
        Brotli.decompress(&STORED, &mut output).unwrap();
        assert_eq!(&output, b"gramway!");
        assert!(Brotli.decompress(&STORED, &mut [0; 7]).is_err());
        assert!(Brotli.decompress(&STORED, &mut [0; 9]).is_err());
        assert!(Brotli.decompress(&STORED[..9], &mut output).is_err());
        assert!(Brotli.decompress(&[0xff; 12], &mut output).is_err());
    }
}
