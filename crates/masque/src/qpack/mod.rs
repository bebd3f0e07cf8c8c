//! QPACK (RFC 9204) without a dynamic table: static references, literals and Huffman strings.
//!
//! We announce a table of capacity 0 and use none of the peer's, so a field section depends on no other stream and
//! never blocks. Any dynamic reference is QPACK_DECOMPRESSION_FAILED, which ends the connection.

mod huffman;
mod integer;
mod static_table;

use std::borrow::Cow;

use crate::{Code, Field, HeaderList, MessageError, headers::size_of_field, limits::FIELD_SECTION_BYTES_MAX};
use static_table::Match;

/// The encoded field section of `list` (RFC 9204 section 4.5).
///
/// ```
/// let list = masque::HeaderList::new().with(":status", "200");
/// let section = masque::qpack::encode(&list);
/// assert_eq!(section, [0, 0, 0xc0 | 25]);
/// assert_eq!(masque::qpack::decode(&section), Ok(list));
/// ```
#[must_use]
pub fn encode(list: &HeaderList) -> Vec<u8> {
    // Required Insert Count 0, Delta Base 0.
    let mut out = vec![0, 0];
    for field in list {
        let never_indexed = u8::from(field.is_secret());
        match static_table::find(field.name(), field.value()) {
            Some(Match::Field(index)) => integer::write(index as u64, 6, 0xc0, &mut out),
            Some(Match::Name(index)) => {
                integer::write(index as u64, 4, 0x50 | never_indexed << 5, &mut out);
                write_string(field.value(), 7, 0, &mut out);
            }
            None => {
                write_string(field.name().as_bytes(), 3, 0x20 | never_indexed << 4, &mut out);
                write_string(field.value(), 7, 0, &mut out);
            }
        }
    }
    out
}

/// The fields of an encoded section.
///
/// # Errors
/// QPACK_DECOMPRESSION_FAILED for the connection; H3_EXCESSIVE_LOAD for the stream where the decoded list passes
/// [`FIELD_SECTION_BYTES_MAX`]; H3_MESSAGE_ERROR for names and values with characters that are not permitted.
pub fn decode(section: &[u8]) -> Result<HeaderList, MessageError> {
    let mut input = section;
    let required_insert_count = integer::take(&mut input, 8).ok_or_else(truncated)?;
    // RFC 9204 section 4.5.1.2: with Required Insert Count 0 the sign bit would make Base negative.
    let base_is_negative = input.first().is_some_and(|byte| byte & 0x80 != 0);
    integer::take(&mut input, 7).ok_or_else(truncated)?;
    if required_insert_count != 0 || base_is_negative {
        return Err(failed(
            "field section refers to a dynamic table that does not exist",
        ));
    }
    let mut list = HeaderList::new();
    let mut size = 0;
    while !input.is_empty() {
        let (name, value) = take_field_line(&mut input)?;
        size += size_of_field(name.len(), value.len());
        if size > FIELD_SECTION_BYTES_MAX {
            return Err(MessageError::stream(
                Code::ExcessiveLoad,
                "decoded field section is too large",
            ));
        }
        list.push_field(Field::parse(&name, &value)?);
    }
    Ok(list)
}

type Text<'a> = Cow<'a, [u8]>;

/// RFC 9204 sections 4.5.2 to 4.5.6.
fn take_field_line<'a>(input: &mut &'a [u8]) -> Result<(Text<'a>, Text<'a>), MessageError> {
    let first = *input.first().ok_or_else(truncated)?;
    match first {
        0xc0.. => {
            let (name, value) = static_entry(integer::take(input, 6))?;
            Ok((name.as_bytes().into(), value.as_bytes().into()))
        }
        0x40..=0x7f if first & 0x10 != 0 => {
            let (name, _) = static_entry(integer::take(input, 4))?;
            Ok((name.as_bytes().into(), take_string(input, 7)?))
        }
        0x20..=0x3f => Ok((take_string(input, 3)?, take_string(input, 7)?)),
        _ => Err(failed("field line refers to a dynamic table that does not exist")),
    }
}

fn static_entry(index: Option<u64>) -> Result<(&'static str, &'static str), MessageError> {
    let index = usize::try_from(index.ok_or_else(truncated)?).unwrap_or(usize::MAX);
    static_table::ENTRIES
        .get(index)
        .copied()
        .ok_or_else(|| failed("index beyond the static table"))
}

/// A string literal (RFC 9204 section 4.1.2): the Huffman flag lies above a length prefix of `bits` bits.
fn take_string<'a>(input: &mut &'a [u8], bits: u32) -> Result<Text<'a>, MessageError> {
    let first = *input.first().ok_or_else(truncated)?;
    let length = integer::take(input, bits).ok_or_else(truncated)?;
    let length = usize::try_from(length).map_err(|_| truncated())?;
    let (string, rest) = input.split_at_checked(length).ok_or_else(truncated)?;
    *input = rest;
    if first >> bits & 1 == 0 {
        return Ok(string.into());
    }
    huffman::decode(string)
        .map(Cow::Owned)
        .ok_or_else(|| failed("invalid Huffman string"))
}

fn write_string(plain: &[u8], bits: u32, flags: u8, out: &mut Vec<u8>) {
    let encoded_len = huffman::encoded_len(plain);
    if encoded_len < plain.len() {
        integer::write(encoded_len as u64, bits, flags | 1 << bits, out);
        huffman::encode(plain, out);
    } else {
        integer::write(plain.len() as u64, bits, flags, out);
        out.extend_from_slice(plain);
    }
}

const fn failed(reason: &'static str) -> MessageError {
    MessageError::connection(Code::QpackDecompressionFailed, reason)
}

const fn truncated() -> MessageError {
    failed("field section ends inside a field line")
}
