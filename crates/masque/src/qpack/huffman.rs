//! The Huffman code of HPACK and QPACK (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: codes grow with their length and, within a length, with their symbol. So the lengths alone
//! are stored and the codes are derived from them at compile time. Decoding walks bit by bit and compares with the
//! first code of each length; field sections are short, and nothing here is on the packet path.

/// Bits of each symbol's code; the last symbol is EOS, which never appears in a string.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// Bits of the longest code.
const LENGTH_MAX: usize = 30;

/// The code, derived from [`LENGTHS`].
struct Tables {
    /// Code of each symbol, right-aligned.
    codes: [u32; 257],
    /// Symbols ordered by code.
    symbols: [u16; 257],
    /// For each length: its first code, the position of that code's symbol in `symbols`, and how many codes it has.
    first: [(u32, u16, u16); LENGTH_MAX + 1],
}

const TABLES: Tables = derive();

const fn derive() -> Tables {
    let mut tables = Tables {
        codes: [0; 257],
        symbols: [0; 257],
        first: [(0, 0, 0); LENGTH_MAX + 1],
    };
    let mut next_code = 0;
    let mut position = 0;
    let mut length = 1;
    while length <= LENGTH_MAX {
        next_code <<= 1;
        let (first_code, first_position) = (next_code, position);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                tables.codes[symbol] = next_code;
                tables.symbols[position as usize] = symbol as u16;
                next_code += 1;
                position += 1;
            }
            symbol += 1;
        }
        tables.first[length] = (first_code, first_position, position - first_position);
        length += 1;
    }
    tables
}

/// Bytes that `plain` takes when encoded.
pub(super) fn encoded_len(plain: &[u8]) -> usize {
    plain
        .iter()
        .map(|byte| usize::from(LENGTHS[usize::from(*byte)]))
        .sum::<usize>()
        .div_ceil(8)
}

/// Appends the code of `plain`, padded with the high bits of EOS.
pub(super) fn encode(plain: &[u8], out: &mut Vec<u8>) {
    let mut pending = 0_u64;
    let mut bits = 0;
    for byte in plain {
        let symbol = usize::from(*byte);
        pending = pending << LENGTHS[symbol] | u64::from(TABLES.codes[symbol]);
        bits += u32::from(LENGTHS[symbol]);
        while bits >= 8 {
            bits -= 8;
            out.push((pending >> bits) as u8);
        }
    }
    if bits > 0 {
        out.push((pending << (8 - bits)) as u8 | 0xff >> bits);
    }
}

/// Decodes `encoded`; `None` for EOS within the string, padding of more than 7 bits, or padding that is not ones
/// (RFC 7541 section 5.2). The result is less than 8/5 as long as the input.
pub(super) fn decode(encoded: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(encoded.len() * 8 / 5);
    let mut code = 0_u32;
    let mut length = 0;
    for byte in encoded {
        for shift in (0..8).rev() {
            code = code << 1 | u32::from(byte >> shift & 1);
            length += 1;
            // The code is complete, so every walk ends at a symbol of at most LENGTH_MAX bits.
            let (first_code, first_position, count) = TABLES.first[length];
            if let Some(offset) = code.checked_sub(first_code)
                && offset < u32::from(count)
            {
                let symbol = TABLES.symbols[usize::from(first_position) + offset as usize];
                plain.push(u8::try_from(symbol).ok()?);
                (code, length) = (0, 0);
            }
        }
    }
    let padding_is_ones = code == (1 << length) - 1;
    (length < 8 && padding_is_ones).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(plain, &mut out);
        assert_eq!(out.len(), encoded_len(plain));
        out
    }

    /// RFC 7541 appendix B, codes across the whole table.
    #[test]
    fn derived_codes_are_those_of_the_rfc() {
        for (symbol, code) in [
            (0, 0x1ff8),
            (1, 0x7f_ffd8),
            (10, 0x3fff_fffc),
            (32, 0x14),
            (47, 0x18),
            (48, 0x0),
            (97, 0x3),
            (92, 0x7_fff0),
            (128, 0xf_ffe6),
            (255, 0x3ff_ffee),
            (256, 0x3fff_ffff),
        ] {
            assert_eq!(TABLES.codes[symbol], code, "symbol {symbol}");
        }
    }

    /// RFC 7541 appendices C.4 and C.6.
    #[test]
    fn the_examples_of_the_rfc_hold_in_both_directions() {
        for (plain, expected) in [
            (
                &b"www.example.com"[..],
                &[
                    0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
                ][..],
            ),
            (b"no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            (b"custom-key", &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f]),
            (
                b"custom-value",
                &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf],
            ),
            (b"302", &[0x64, 0x02]),
            (b"private", &[0xae, 0xc3, 0x77, 0x1a, 0x4b]),
            (b"", &[]),
        ] {
            assert_eq!(encoded(plain), expected);
            assert_eq!(decode(expected).as_deref(), Some(plain));
        }
    }

    #[test]
    fn every_byte_survives_a_round_trip() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encoded(&all)), Some(all));
    }

    #[test]
    fn eos_and_wrong_padding_are_refused() {
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff]), None, "EOS");
        assert_eq!(decode(&[0x64, 0x02, 0xff]), None, "eight bits of padding");
        assert_eq!(decode(&[0x00]), None, "padding of zeros");
        assert_eq!(decode(&[0xff]), None, "padding only");
    }
}
